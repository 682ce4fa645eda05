"""What doit 0.37 gets wrong by itself and a workspace must not: state, signals, concurrency, output.

Each of these was an experiment first; they stay as tests so that an update of doit that changes one is noticed.
"""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.workspace_tool import bare, finish, is_alive, until

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

FIRST_AND_SLOW = """
def task_first():
    return {"actions": [Proc(["sh", "-c", "echo x >> first.count; cp in.txt first.out"])],
            "file_dep": ["in.txt"], "targets": ["first.out"]}
def task_slow():
    return {"actions": [Proc(["sh", "-c", "echo $$ > slow.pid; sleep 60 & echo $! > child.pid; wait"])],
            "file_dep": ["first.out"], "targets": ["slow.out"]}
"""

MODES = pytest.mark.parametrize("mode", [["-n", "0"], ["-n", "4"]], ids=["serial", "threads"])


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@MODES
def test_sigkill_keeps_finished_tasks_and_leaves_no_child(tmp_path: Path, mode: list[str]) -> None:
    doit = bare(tmp_path, FIRST_AND_SLOW)
    (tmp_path / "in.txt").write_text("1")
    process = doit.start("run", *mode, "slow")
    until(lambda: lines(tmp_path / "child.pid"))
    pids = [int((tmp_path / name).read_text()) for name in ("child.pid", "slow.pid")]
    process.send_signal(signal.SIGKILL)
    finish(process)
    until(lambda: not any(map(is_alive, pids)), 2)
    done = doit.ok("first")
    assert "ok    first" in done.out
    assert lines(tmp_path / "first.count") == 1


@MODES
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_children_saves_state_and_gives_its_code(
    tmp_path: Path, mode: list[str], number: int, code: int
) -> None:
    doit = bare(tmp_path, FIRST_AND_SLOW)
    (tmp_path / "in.txt").write_text("1")
    process = doit.start("run", *mode, "slow")
    until(lambda: lines(tmp_path / "child.pid"))
    start = time.monotonic()
    process.send_signal(number)
    done = finish(process)
    assert done.code == code, done
    assert time.monotonic() - start < 15
    assert "Traceback" not in done.text, done
    for name in ("child.pid", "slow.pid"):
        assert not is_alive(int((tmp_path / name).read_text())), name
    assert "ok    first" in doit.ok("first").out


TWENTY = """
def task_many():
    for n in range(20):
        yield {"name": str(n), "targets": [f"{n}.out"], "file_dep": ["in.txt"],
               "actions": [Proc(["sh", "-c", f"echo x >> {n}.count; sleep 0.1; touch {n}.out"])]}
"""


def test_two_runs_do_nothing_twice_and_lose_nothing(tmp_path: Path) -> None:
    doit = bare(tmp_path, TWENTY)
    (tmp_path / "in.txt").write_text("1")
    both = [doit.start("run", "-n", "4", "many") for _ in range(2)]
    for process in both:
        done = finish(process)
        assert done.code == 0, done
    assert [lines(tmp_path / f"{n}.count") for n in range(20)] == [1] * 20
    third = doit.ok("many")
    assert third.out.count("ok    many:") == 20


def test_disjoint_runs_keep_each_others_state(tmp_path: Path) -> None:
    doit = bare(tmp_path, TWENTY)
    (tmp_path / "in.txt").write_text("1")
    both = [doit.start("run", *(f"many:{n}" for n in part)) for part in (range(10), range(10, 20))]
    assert [finish(process).code for process in both] == [0, 0]
    assert doit.ok("many").out.count("ok    many:") == 20


@MODES
def test_an_input_edited_during_the_run_is_stale_afterwards(tmp_path: Path, mode: list[str]) -> None:
    doit = bare(
        tmp_path,
        """
def task_copy():
    return {"actions": [Proc(["sh", "-c", "cp in.txt out.txt; echo x >> copy.count; sleep 1"])],
            "file_dep": ["in.txt"], "targets": ["out.txt"]}
""",
    )
    (tmp_path / "in.txt").write_text("old")
    process = doit.start("run", *mode, "copy")
    until(lambda: lines(tmp_path / "copy.count"))
    (tmp_path / "in.txt").write_text("new")
    assert finish(process).code == 0
    doit.ok("copy")
    assert (tmp_path / "out.txt").read_text() == "new"
    assert lines(tmp_path / "copy.count") == 2
    doit.ok("copy")
    assert lines(tmp_path / "copy.count") == 2


def test_same_mtime_and_size_with_other_content_is_noticed_by_inode(tmp_path: Path) -> None:
    doit = bare(tmp_path, FIRST_AND_SLOW)
    source = tmp_path / "in.txt"
    source.write_text("aaaa")
    stat = source.stat()
    doit.ok("first")
    other = tmp_path / "other"
    other.write_text("bbbb")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.rename(source)
    doit.ok("first")
    assert (tmp_path / "first.out").read_text() == "bbbb"


def test_touching_an_input_runs_nothing(tmp_path: Path) -> None:
    doit = bare(tmp_path, FIRST_AND_SLOW)
    (tmp_path / "in.txt").write_text("1")
    doit.ok("first")
    os.utime(tmp_path / "in.txt", (1, 1))
    assert "ok    first" in doit.ok("first").out


def test_a_deleted_target_is_stale(tmp_path: Path) -> None:
    doit = bare(tmp_path, FIRST_AND_SLOW)
    (tmp_path / "in.txt").write_text("1")
    doit.ok("first")
    (tmp_path / "first.out").unlink()
    doit.ok("first")
    assert (tmp_path / "first.out").exists()


def test_json_output_is_json_with_threads(tmp_path: Path) -> None:
    doit = bare(tmp_path, TWENTY)
    (tmp_path / "in.txt").write_text("1")
    told = json.loads(doit.ok("run", "-r", "json", "-n", "4", "many").out)
    assert {task["result"] for task in told["tasks"] if task["name"] != "many"} == {"success"}
    told = json.loads(doit.ok("run", "-r", "json", "-n", "4", "many").out)
    assert {task["result"] for task in told["tasks"] if task["name"] != "many"} == {"up-to-date"}


def test_a_failing_program_says_which_and_where_its_log_is(tmp_path: Path) -> None:
    doit = bare(tmp_path, 'def task_bad():\n    return {"actions": [Proc(["sh", "-c", "echo the reason; exit 3"])]}\n')
    done = doit.fails("bad")
    assert done.code == 1
    assert "FAIL  bad" in done.out
    assert "code 3" in done.out
    assert "the reason" in done.out
    log = re.search(r"log: (\S+)", done.out)
    assert log is not None
    assert (tmp_path / log[1]).read_text() == "the reason\n"


def test_a_bug_in_a_task_is_one_line_and_the_traceback_is_in_its_log(tmp_path: Path) -> None:
    doit = bare(tmp_path, 'def task_bug():\n    return {"actions": [Proc(["sh"], env={"X": 1})]}\n')
    done = doit.fails("bug")
    log = re.search(r"log: (\S+)", done.out)
    assert log is not None
    assert "Traceback" in (tmp_path / log[1]).read_text()


def test_a_bare_doit_runs_nothing_and_says_what_to_name(tmp_path: Path) -> None:
    doit = bare(tmp_path, FIRST_AND_SLOW)
    done = doit.fails()
    assert "doit list" in done.err
    assert not (tmp_path / "first.count").exists()


@pytest.mark.parametrize("command", [["frist"], ["plan", "frist"], ["why", "frist"], ["list", "frist"]])
def test_a_mistyped_name_gets_a_suggestion(tmp_path: Path, command: list[str]) -> None:
    doit = bare(tmp_path, FIRST_AND_SLOW)
    done = doit.fails(*command)
    assert "did you mean: first" in done.err


def test_other_dodo_files_keep_doits_own_behaviour(tmp_path: Path) -> None:
    doit = bare(tmp_path)
    (tmp_path / "dodo.py").write_text('def task_plain():\n    return {"actions": ["echo plain"], "verbosity": 2}\n')
    done = doit.ok()
    assert ".  plain\nplain\n" in done.out
    assert "plain" in doit.ok("list").out


def test_process_mode_is_refused(tmp_path: Path) -> None:
    doit = bare(tmp_path, FIRST_AND_SLOW)
    assert "threads" in doit.fails("run", "-P", "process", "-n", "2", "first").err
