"""The commands at their edges: names, groups, broken parts, and doit's own commands that are withheld."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.test_goals import change, recipe, write
from tests.workspace_tool import DODO, Tool, until


@pytest.fixture
def doit(tmp_path: Path) -> Tool:
    write(tmp_path)
    recipe(tmp_path, "s", cluster="other")
    (tmp_path / "dodo.py").write_text(
        DODO + 'def task_echo():\n    return {"actions": [Proc(["echo"])], "pos_arg": "args", "doc": "say it"}\n'
    )
    return Tool(tmp_path)


def test_list_names_what_can_be_made(doit: Tool) -> None:
    done = doit.ok("list")
    rows = dict(line.split(None, 1) for line in done.out.splitlines())
    assert rows["serve:r"] == "serve m on one, port 8000"
    assert rows["stop:r"] == "stop the lane of r on dgx1"
    assert rows["echo"] == "say it"
    assert "stage:r" in rows
    brief = doit.ok("list", "--brief").out
    assert "serve " in brief
    assert "serve:r" not in brief
    assert "artifact:" not in doit.ok("list", "-q").out
    assert "artifact:pins" in doit.ok("list", "-q", "--all").out.splitlines()
    assert "R serve:r" in doit.ok("list", "--status").out


@pytest.mark.parametrize("group", ["stop", "stop:*", "lock", "lock:pin:*"])
def test_groups_that_nobody_means_as_a_whole_are_refused(doit: Tool, group: str) -> None:
    done = doit.fails(group)
    assert "name the lane" in done.err or "name the lock" in done.err or "which lock" in done.err
    assert not doit.runs()


def test_a_pattern_that_matches_nothing_is_an_error(doit: Tool) -> None:
    assert "no task matches 'serve:zz*'" in doit.fails("serve:zz*").err


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("artifact:rx", "locks/rx.source.lock:2"),
        ("artifact:rx:weights", "locks/rx.source.lock:2"),
        ("plan source:rx:engine", "locks/rx.source.lock:2"),
        ("why artifact:rx:weights", "locks/rx.source.lock:2"),
        ("lock:verify:rx", "locks/rx.source.lock:2"),
        ("artifact:rx*", "locks/rx.source.lock:2"),
        ("repro:ix", "images/ix/image.toml:1"),
        ("serve:bx", "recipes/bx/recipe.toml:1"),
        ("serve:bx*", "recipes/bx/recipe.toml:1"),
        ("plan stage:bx*", "recipes/bx/recipe.toml:1"),
    ],
)
def test_a_file_with_a_mistake_is_not_as_if_it_were_not_there(doit: Tool, words: str, file: str) -> None:
    (doit.root / "locks").mkdir(exist_ok=True)
    (doit.root / "locks/rx.source.lock").write_text("format=local-inference-source-lock/v1\nbroken line\n")
    for path in ("images/ix/image.toml", "recipes/bx/recipe.toml"):
        (doit.root / path).parent.mkdir(parents=True)
        (doit.root / path).write_text("kind = 3\n")
    done = doit.fails(*words.split())
    assert done.code == 3, done
    assert file in done.err
    assert "did you mean" not in done.err


def test_what_follows_a_task_with_arguments_is_its_own(doit: Tool) -> None:
    done = doit.ok("echo", "some words", "serve:nothing", "-x")
    log = next((doit.root / ".sparkbuild" / "runs").glob("*/echo.log"))
    assert log.read_text() == "some words serve:nothing -x\n", done


@pytest.mark.parametrize("command", ["clean", "dumpdb", "info", "reset-dep", "strace", "tabcompletion"])
def test_commands_that_would_mislead_are_withheld(doit: Tool, command: str) -> None:
    assert f"doit {command} is not offered in a workspace" in doit.fails(command).err


def test_they_work_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "dodo.py").write_text('def task_plain():\n    return {"actions": ["echo plain"], "targets": ["x"]}\n')
    assert "plain" in Tool(tmp_path)("info", "plain").out


def test_a_template_that_cannot_be_filled_in_is_said_before_anything_is_made(doit: Tool) -> None:
    change(doit.root / "recipes" / "r" / "recipe.toml", "staged.data", "staged.date")
    done = doit.fails("serve:r")
    assert "there is no `date` in `staged`" in done.err
    assert "did you mean" in done.err
    assert not doit.runs()
    shown = doit.ok("plan", "serve:r").out
    assert "cannot be made so:" in shown
    assert "staged.data" in shown


def test_a_secret_without_a_value_is_said_before_anything_is_made(doit: Tool) -> None:
    change(doit.root / "recipes" / "r" / "recipe.toml", "[serve]", '[serve]\nsecrets = ["SOME_TOKEN"]')
    assert "SOME_TOKEN" in doit.fails("serve:r").err
    assert not doit.runs()


def test_a_broken_recipe_blocks_no_other_and_stays_in_sight(doit: Tool) -> None:
    (doit.root / "recipes" / "r" / "recipe.toml").write_text("cluster = = 1\n")
    done = doit("list")
    assert done.code == 2
    assert "recipes/r/recipe.toml:1" in done.err
    assert "serve:s" in done.out
    assert "stop:r" in done.out
    assert "recipes/r/recipe.toml:1" in doit.fails("serve:r").err
    assert doit.ok("plan", "serve:s").out
    status = doit("status")
    assert status.code == 2
    assert status.out.splitlines()[0].split()[0] == "r"
    assert "does not run" in doit.ok("stop:r").out
    assert "was never started" in doit.fails("logs", "r").err


def test_a_broken_config_is_one_message(doit: Tool) -> None:
    (doit.root / "config.toml").write_text("[nodes.dgx1]\nconection = 1\n")
    for command in (["list"], ["plan"], ["serve:r"], ["status"]):
        done = doit.fails(*command)
        assert "config.toml:2" in done.err
        assert "did you mean `connection`" in done.err


def test_a_lock_that_is_not_yet_pinned_can_be_pinned(doit: Tool) -> None:
    lock = doit.root / "locks" / "pins.source.lock"
    change(doit.root / "images" / "tiny" / "image.toml", 'lock = "pins"', 'lock = "pins"\npython = "3.10"')
    (doit.root / "images" / "tiny" / "requirements.lock").write_text("# changed\n")
    assert "is not what the lock pins" in doit.fails("lock:check").text
    assert "changed: input.images/tiny/requirements.lock.sha256" in doit.ok("lock:pin:pins").out
    assert "1 lock with 2 components" in doit.ok("lock:check").out
    text = lock.read_text().splitlines()
    lock.write_text(
        "\n".join(line.partition("=")[0] + "=" if line.startswith("input.") else line for line in text) + "\n"
    )
    assert doit("list").code == 2
    doit.ok("lock:pin:pins")
    assert doit("list").code == 0


def test_messages_name_the_command_as_it_was_typed(doit: Tool) -> None:
    doit.env["SPARKBUILD_CALLED_AS"] = "./doitw"
    assert "next:   ./doitw list" in doit.fails("serve:x").err
    assert "make it so:  ./doitw serve:r" in doit.ok("plan", "serve:r").out
    port = (doit.root / "recipes/r/recipe.toml").read_text().partition("port = ")[2].split()[0]
    argv = [sys.executable, "-c", "import time; time.sleep(60)", f"--port={port}"]
    with subprocess.Popen(argv, env={"SPARKBUILD_LANE": "lanes/r/1.log"}) as elsewhere:
        until(lambda: "SPARKBUILD_LANE" in Path(f"/proc/{elsewhere.pid}/environ").read_text())
        said = doit.ok("status", "r").out
        elsewhere.kill()
    assert "only ./doitw stop:r of that workspace ends it" in said


def test_recipes_are_suggested_to_commands_about_recipes(doit: Tool) -> None:
    change(doit.root / "recipes" / "s" / "recipe.toml", "8000", "8001")
    (doit.root / "recipes" / "s").rename(doit.root / "recipes" / "demo")
    assert "did you mean: demo?" in doit.fails("logs", "dmo").err
    assert "did you mean: demo?" in doit.fails("status", "dmo").err
    assert "did you mean: serve:demo" in doit.fails("demo").err


def test_why_names_the_cause_and_the_command(doit: Tool) -> None:
    done = doit.ok("why", "serve:r")
    assert done.out.startswith("run     serve:r   lane://one/r@")
    assert "not served yet" in done.out
    assert "make it so: doit serve:r" in done.out
    assert "image:tiny" in done.out
    assert "name a task" in doit.fails("why").err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(doit: Tool, shell: str) -> None:
    assert "serve" in doit.ok("completion", shell).out or "list -q" in doit.ok("completion", shell).out
    assert "name a shell" in doit.fails("completion", "tcsh").err


def test_the_options_of_a_task_and_their_values_are_no_tasks(doit: Tool) -> None:
    params = [
        {"name": "label", "long": "label", "default": ""},
        {"name": "again", "long": "again", "type": bool, "default": False},
    ]
    shown = str(params).replace("<class 'bool'>", "bool")
    task = f'def task_opt():\n    return {{"actions": [Proc(["true"])], "params": {shown}}}\n'
    (doit.root / "dodo.py").write_text(DODO + task)
    for words in ("--label night1", "--label=night1", "--again --label night1", "--label a --again"):
        assert "done  opt" in doit.ok("opt", *words.split()).out
    done = doit.fails("opt", "--label", "../x")
    assert "this cannot be the label of a report" in done.err
    assert "done" not in done.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--no-wait serve:r", "--no-wait is an option of the task, and stands after its name: doit serve:r --no-wait"),
        ("--again", "--again is an option of the task, and stands after its name: doit bench:<recipe> --again"),
        (
            "serve:r --no-wiat",
            (
                "serve:r has no option --no-wiat\n  did you mean: --no-wait?\n  wanted: --no-wait, --stage\n"
                "  next:   doit help serve:r"
            ),
        ),
        ("stop:r --x", "stop:r has no option --x\n  wanted: none: it has no options\n  next:   doit help stop:r"),
        ("serve:r -c", "-c is an option of doit, and stands before the names: doit -c serve:r"),
        ("serve:r -n 1", "-n is an option of doit, and stands before the names: doit -n ... serve:r"),
        ("--rank 3 logs", "doit run has no option --rank\n  next:   doit help run"),
        ("-n x serve:r", "-n takes a whole number, and 'x' is none"),
        ("logs r --rank x", "--rank takes a whole number, and 'x' is none"),
        ("logs r -n", "option -n requires argument; doit help logs lists its options"),
        ("logs r --rank 1", "lane r has no rank 1: 0 to 0"),
        ("plan --jsn", "doit plan has no option --jsn\n  did you mean: --json?\n  next:   doit help plan"),
        ("forget --nope", "doit forget has no option --nope\n  next:   doit help forget"),
        ("forget", "name what to forget: doit forget TASK, or doit forget --all"),
        ("ignore", "name what to ignore: doit ignore TASK; doit forget TASK ends that"),
        ("ignore serve:q", "there is no task 'serve:q'\n  did you mean: serve:s, serve:r, serve?\n  next:   doit list"),
        ("help a b", "name one command or task: doit help <name>"),
        ("help zzz", "there is no task 'zzz'\n  next:   doit list"),
        ("plan stage:zz*", "no task matches 'stage:zz*'\n  next:   doit list"),
        ("health:one --jsn", "health:one has no option --jsn\n  did you mean: --json?\n  next:   doit help health"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_message(doit: Tool, words: str, text: str) -> None:
    done = doit.fails(*words.split())
    assert (done.code, done.err) == (3, f"ERROR: {text}\n")
    assert done.out == ""


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("plan --help", ["PURPOSE", "--verbose"]),
        ("plan -h", ["PURPOSE", "--verbose"]),
        ("help plan", ["PURPOSE", "--verbose"]),
        ("-h", ["Tasks", "serve:RECIPE", "Commands"]),
        ("run -h", ["PURPOSE", "--continue"]),
        ("forget --help", ["PURPOSE", "--all"]),
        ("serve:r --help", ["serve:r  serve m on one, port 8000", "--no-wait", "--stage"]),
        ("help serve:r", ["serve:r  serve m on one, port 8000", "--no-wait", "--stage"]),
        ("stage:r -h", ["stage:r  stage all that r wants", "--evict"]),
        ("verify:r --help", ["PURPOSE", "--scrub"]),
        ("health:one --help", ["PURPOSE", "--json"]),
        ("lock:update --help", ["lock:update  pin anew", "--dry-run"]),
    ],
)
def test_help_is_given_however_it_is_asked_for(doit: Tool, words: str, texts: list[str]) -> None:
    done = doit.ok(*words.split())
    assert all(text in done.out for text in texts), done
    assert not doit.runs()
    assert not done.err


@pytest.fixture
def read_only(doit: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    """The workspace on a file system that cannot be written, which stops root as well."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    place = tmp_path_factory.mktemp("ro")
    subprocess.run(["mount", "--bind", doit.root, place], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        yield Tool(place)
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_workspace_that_cannot_be_written_can_be_looked_at(doit: Tool, read_only: Tool) -> None:
    doit.ok("echo", "x")  # there is state to read
    for command in (["list"], ["plan"], ["status"], ["why", "serve:r"], ["list", "--status"]):
        read_only.ok(*command)
    done = read_only.fails("artifact:pins:data")
    assert "Read-only file system" in done.text or "may not be written" in done.text


def test_an_output_that_cannot_be_written_is_one_message(doit: Tool) -> None:
    line = f"{sys.executable} -m doit list > /dev/full"
    done = subprocess.run(
        ["bash", "-c", line], cwd=doit.root, env=doit.env, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "No space left on device" in done.stderr


def test_a_broken_recipe_is_stopped_where_it_was_launched(doit: Tool) -> None:
    """Nodes that never had the lane are not asked for it: one that is off would be told as where it may still run."""
    config = doit.root / "config.toml"
    config.write_text(
        config.read_text()
        + '\n[nodes.off]\nconnection = "ssh"\nstore = "/srv/s"\naddress = "127.0.0.1"\nport = 1\nuser = "nobody"\n'
    )
    (doit.root / "recipes" / "r" / "recipe.toml").write_text("cluster = = 1\n")
    assert "off" in doit.fails("stop:r").text
    noted = doit.root / ".sparkbuild/lanes/r"
    noted.mkdir(parents=True)
    (noted / "dgx1").touch()
    assert "lane r does not run on dgx1" in doit.ok("stop:r").out
