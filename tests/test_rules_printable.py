"""Text of others is printable wherever it is shown: the function itself, and that no way to a terminal avoids it."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest

from sparkbuild.agent.wire.printable import SHOWN, lines, one_line, printable
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.run import Progress
from sparkbuild.core.screen import Screen
from sparkbuild.plugin.adapters.progress import PlainDisplay, RichDisplay
from tests.bad_engine import ESCAPES, MARKUP

PACKAGE = Path(__file__).resolve().parents[1] / "sparkbuild"
# who may write to a stream of the system itself
MAY_WRITE = {
    "core/screen.py",  # the owner
    "core/templates/process.py",  # what a child says to us, through a pipe
    "__main__.py",  # `init`, before there is a workspace: words of ours
    "plugin/adapters/streams.py",  # a line end, to see whether it can be written
    "plugin/commands/help.py",  # words of ours
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve 日本語 ✓", "naïve 日本語 ✓"),
        ("\x1b]0;t\x07x", "\\u001b]0;t\\u0007x"),
        ("\x1b[1;36mcolour\x1b[0;0m gone", "colour gone"),
        ("\x1b[2Jcleared", "\\u001b[2Jcleared"),
        ("a\tb\x0bc", "a b c"),
        ("a\u2028b\x85c", "a\\u2028b\\u0085c"),
        ("\u202eturned", "\\u202eturned"),
        ("\x9b31m", "\\u009b31m"),
        ("\udcff", "\\udcff"),
        ("\U000e0001", "\\udb40\\udc01"),
        ("over\rwritten", "over written"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    assert shown.isprintable()


def test_blanks_of_other_scripts_stay() -> None:
    assert printable("a\xa0b\u3000c\x1b") == "a\xa0b\u3000c\\u001b"


def test_json_stays_json() -> None:
    value = {"model": ESCAPES, "tag": "\U000e0001", "path": "a\xa0b\u2028"}
    assert json.loads(printable(json.dumps(value, ensure_ascii=False))) == value


def test_one_line_is_one_and_bounded() -> None:
    assert one_line(" a\n  FAIL b\r\n\u2028c ") == "a FAIL b c"
    for text in ("x" * 10_000_000, "\x1b" * 10_000_000, "\n" * 10_000_000 + "x"):
        assert len(one_line(text)) <= SHOWN


def test_lines_keep_their_ends() -> None:
    assert lines("a\x07\nb\n") == "a\\u0007\nb\n"


def test_an_error_is_printable() -> None:
    text = str(SparkbuildError(ESCAPES, where=ESCAPES, found=f"{ESCAPES}\n{ESCAPES}", next=ESCAPES))
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.split("\n")) == 5


def test_a_screen_is_printable() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.write(f"{ESCAPES}\n")
    screen.writelines([ESCAPES, "\n"])
    print(ESCAPES, file=screen)  # type: ignore[call-overload]
    assert all(line.isprintable() for line in stream.getvalue().split("\n"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", [MARKUP, "[/INST]", "[/]", "[link=x]y", "\\[", ":smile:", "[bold"])
def test_no_text_is_markup(text: str) -> None:
    stream = Terminal()
    display = RichDisplay(stream)
    display.update("serve:x", Progress(text, 1, 2, text))
    display.line(text)
    display.update(text, Progress(text, 2, 2, "s"))
    display.end("serve:x")
    display.end(text)
    display.close()
    assert text in stream.getvalue()


@pytest.mark.parametrize("kind", [RichDisplay, PlainDisplay])
def test_progress_is_printable(kind: type[RichDisplay | PlainDisplay]) -> None:
    stream = Terminal()
    display = kind(stream)
    display.update("serve:x", Progress(ESCAPES, 1, 2))
    display.line(ESCAPES)
    display.close()
    assert "\x1b]0;" not in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()
    assert "\u202e" not in stream.getvalue()


def writers(path: Path) -> list[int]:
    """The lines on which a module writes to stdout or stderr of the system, or prints."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        callee = node.func
        if isinstance(callee, ast.Name) and callee.id == "print":
            found.append(node.lineno)
        if (
            isinstance(callee, ast.Attribute)
            and callee.attr in {"write", "writelines"}
            and ast.unparse(callee.value).startswith(("sys.stdout", "sys.stderr", "sys.__std"))
        ):
            found.append(node.lineno)
    return found


def test_there_is_one_way_to_the_terminal() -> None:
    around = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "agent"
        and "template" not in path.parts
        and str(path.relative_to(PACKAGE)) not in MAY_WRITE
        for line in writers(path)
    ]
    assert not around, f"write through core/screen.py: {around}"


def test_rich_is_asked_in_one_module() -> None:
    named = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "rich")
        or (isinstance(node, ast.Import) and any(one.name.partition(".")[0] == "rich" for one in node.names))
    ]
    assert set(named) == {"plugin/adapters/bars.py"}
