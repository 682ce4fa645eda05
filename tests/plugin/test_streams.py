"""Where output goes: streams that are closed, full or no longer read, colours, and mistakes in dodo.py."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparkbuild.core.run import Progress
from sparkbuild.core.screen import painted
from sparkbuild.plugin.adapters.progress import RichDisplay
from tests.plugin.test_goals import recipe, write
from tests.workspace_tool import DODO, Tool


@pytest.fixture
def doit(tmp_path: Path) -> Tool:
    write(tmp_path)
    (tmp_path / "dodo.py").write_text(DODO)
    return Tool(tmp_path)


def shell(doit: Tool, script: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in the workspace; `$doit` runs doit."""
    env = {**doit.env, "doit": f"{sys.executable} -m doit"}
    argv = ["bash", "-c", script]
    return subprocess.run(argv, cwd=doit.root, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("command", ["list", "plan", "status", "help", "list -s"])
def test_a_closed_stdout_is_no_error(doit: Tool, command: str) -> None:
    done = shell(doit, f"$doit {command} >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_work_is_done_whatever_streams_are_closed(doit: Tool) -> None:
    """The files that are opened get other numbers than the streams: what programs print ends up in none of them."""
    (doit.root / "dodo.py").write_text(
        DODO + 'def task_talk():\n    return {"actions": [Proc(["sh", "-c", "echo out; echo err >&2"], show=True)]}\n'
    )
    done = shell(doit, "$doit talk <&- >&- 2>&-")
    assert done.returncode == 0
    assert (doit.root / ".sparkbuild/state.db").read_bytes().startswith(b"SQLite format 3")
    assert not any(b"out\n" in file.read_bytes() for file in (doit.root / ".sparkbuild").glob("state.db*"))


@pytest.mark.parametrize("command", ["list", "plan", "help", "completion bash", "touch", "-n 2 touch", "forget touch"])
def test_output_that_cannot_be_written_is_said(doit: Tool, command: str) -> None:
    (doit.root / "dodo.py").write_text(DODO + '\ndef task_touch():\n    return {"actions": [Proc(["true"])]}\n')
    done = shell(doit, f"$doit {command} >/dev/full")
    assert done.returncode == 3
    assert done.stderr.startswith("ERROR: what this command prints cannot be written\n  found:  No space left")
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("command", ["list", "list --all", "plan -v"])
def test_a_reader_that_has_seen_enough(doit: Tool, command: str) -> None:
    for number in range(300):  # more than a pipe holds
        recipe(doit.root, f"copy{number}", cluster="other")
    done = shell(doit, f"set -o pipefail; $doit {command} | head -1")
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("import nothing_of_that_name", "found:  ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = (", "found:  SyntaxError: '(' was never closed"),
        ("1 / 0", "found:  ZeroDivisionError: division by zero"),
        ("def task_broken(): return {'actions': [undefined]}", "found:  NameError: name 'undefined' is not defined"),
    ],
)
@pytest.mark.parametrize("command", ["list", "serve:r"])
def test_a_mistake_in_dodo_py_is_one_message_with_its_line(doit: Tool, line: str, told: str, command: str) -> None:
    (doit.root / "dodo.py").write_text(DODO + line + "\n")
    done = doit.fails(command)
    assert done.code == 3
    lines = done.err.splitlines()
    assert lines[0] == "ERROR: the tasks of this workspace cannot be loaded"
    assert lines[1] == f"  where:  dodo.py:{DODO.count(chr(10)) + 1}"
    assert lines[2].strip() == told
    assert "Traceback" not in done.err


def test_a_mistake_in_a_module_that_dodo_py_imports(doit: Tool) -> None:
    (doit.root / "more.py").write_text("\n\nraise KeyError('name')\n")
    (doit.root / "dodo.py").write_text(DODO + "import more\n")
    assert "  where:  more.py:3\n  found:  KeyError: 'name'" in doit.fails("list").err


def test_below_the_workspace_it_is_named(doit: Tool) -> None:
    below = Tool(doit.root / "recipes/r", doit.env)
    done = below.fails("list")
    assert "there is no dodo.py in this folder; the workspace is above it" in done.err
    assert f"next:   cd {doit.root}" in done.err


def test_where_there_is_none_at_all(tmp_path: Path) -> None:
    done = Tool(tmp_path).fails("list")
    assert "there is no dodo.py here, nor in a folder above" in done.err
    assert "python -m sparkbuild init DIR" in done.err


@pytest.mark.parametrize("words", ["-h", "--help", "help"])
def test_help_names_the_kinds_of_tasks_and_no_command_that_is_refused(doit: Tool, words: str) -> None:
    text = doit.ok(words).out
    assert text.startswith("sparkbuild ")
    for name in ("serve:RECIPE", "stop:RECIPE", "stage:RECIPE", "lock:check", "plan", "status", "verify"):
        assert f"  doit {name}" in text
    for name in ("clean", "dumpdb", "info", "reset-dep", "strace", "tabcompletion"):
        assert f"doit {name}" not in text


def test_help_of_another_dodo_file_is_doits(tmp_path: Path) -> None:
    (tmp_path / "dodo.py").write_text('def task_plain():\n    return {"actions": ["echo plain"]}\n')
    for words in ("--help", "help"):
        assert "doit -- automation tool" in Tool(tmp_path).ok(words).out


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish on this machine")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [("doit serve:", "serve:r"), ("doit logs ", "r"), ("doit plan --ver", "--verbose"), ("doit heal", "health")],
)
def test_fish_completes(doit: Tool, line: str, wanted: str) -> None:
    program = doit.root / "bin/doit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m doit "$@"\n')
    program.chmod(0o755)
    env = {**doit.env, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(doit.root)}
    script = f"doit completion fish | source; complete -C'{line}'"
    done = subprocess.run(
        ["fish", "-c", script], cwd=doit.root, env=env, capture_output=True, text=True, check=True, timeout=120
    )
    assert wanted in done.stdout.split()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_is_a_bar_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    display = RichDisplay(stream)
    display.update("stage:demo-of-a-long-name:dgx1:weights", Progress("copy from the source", 40 << 20, 93 << 20))
    display.line("ok    image:llamacpp  [/INST] as it is")
    display.close()
    shown = stream.getvalue()
    assert max(len(bar) for bar in re.findall("[━╸╺]+", re.sub("\x1b\\[[0-9;]*m", "", shown))) == 20
    assert "of 97.5 MB" in shown
    assert "ok\x1b[0m    image:llamacpp  [/INST] as it is" in shown


@pytest.mark.parametrize(
    ("word", "code"), [("FAIL", "1;31"), ("run", "36"), ("ok", "32"), ("done", "32"), ("unknown", "33")]
)
def test_states_have_a_colour_on_a_terminal(word: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert painted(f"{word}   x", Terminal()) == f"\x1b[{code}m{word}\x1b[0m   x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted(f"{word}   x", Terminal()) == f"{word}   x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert painted(f"{word}   x", Terminal()) == f"{word}   x"
