"""The agent's archive and the commands that start it: the same each time, and safe in every shell."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sparkbuild.nodes.rpc import pack

REQUEST = {"queries": [{"scheme": "artifact", "sha256": "a" * 64, "filename": "x"}]}


def shell(command: str, data: bytes, name: str = "sh") -> subprocess.CompletedProcess[bytes]:
    """As sshd runs a command, with the end of stdin after the data."""
    return subprocess.run([name, "-c", command], input=data, capture_output=True, check=False)


def request(store: Path, **more: object) -> bytes:
    return json.dumps({"store": str(store), **REQUEST, **more}).encode() + b"\n"


BEGUN = f"{pack.MARK}{pack.READ}\n".encode()


def ours(said: bytes) -> bytes:
    """What comes after the line that everything of the agent's begins with."""
    before, _, rest = said.partition(BEGUN)
    assert before == b"\n", "in front of it, the end of a line that a login shell may have left open"
    return rest


def test_a_request_that_a_login_shell_read_some_of(tmp_path: Path) -> None:
    cut = shell(pack.start_command(sys.executable, "facts"), request(tmp_path)[5:])
    assert cut.stdout == f"\n{pack.MARK}{pack.EATEN}\n".encode()
    assert not cut.stderr, "no traceback"


def test_a_way_to_the_code_that_cannot_be_looked_at(tmp_path: Path) -> None:
    """A path that the kernel refuses to walk: the answer is that there is no such code, not a traceback."""
    said = shell(pack.start_command(sys.executable, "facts"), request(tmp_path / ("x" * 300)))
    assert not said.stderr
    assert json.loads(ours(said.stdout))["fits"] is True
    gone = shell(pack.start_command(sys.executable, "facts").replace("w=way(f)", "raise OSError"), request(tmp_path))
    assert not gone.stderr
    assert gone.returncode == pack.NOT_THERE


@pytest.mark.parametrize("command", [pack.start_command(sys.executable, "facts"), pack.unpack_command(sys.executable)])
@pytest.mark.parametrize("sent", [b"", b'{"store": "/sr'], ids=["nothing", "half"])
def test_a_link_that_is_cut_before_the_request_came_leaves_nobody_waiting(command: str, sent: bytes) -> None:
    """Nothing is closed by that: who waits has to see for himself that nothing comes."""
    words = shlex.split(command.replace(f",{pack._PATIENCE})", ",0.5)"))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as started:
        assert started.stdin is not None
        assert started.stderr is not None
        started.stdin.write(sent)
        started.stdin.flush()
        assert started.wait(20) == 143
        assert not started.stderr.read()


def test_the_archive_is_the_same_each_time() -> None:
    first, name = pack.archive(), pack.name()
    for cached in (pack.archive, pack.name, pack._sources):
        cached.cache_clear()
    assert (pack.archive(), pack.name()) == (first, name)
    names = zipfile.ZipFile(io.BytesIO(first)).namelist()
    assert names == sorted(names)
    assert {"sparkbuild/__init__.py", "sparkbuild/agent/main.py", "sparkbuild/agent/unpack.py"} <= set(names)
    assert all(one.endswith(".py") and not one.startswith("sparkbuild/nodes/") for one in names)


def test_the_commands_are_one_line_of_four_words_and_more() -> None:
    for command in (pack.start_command("it's a python", "facts"), pack.unpack_command("it's a python")):
        assert shlex.split(command)[:4] == ["it's a python", "-I", "-S", "-c"]
        assert not set(command.partition(" -c ")[2]) & set("\n!\\")


def test_what_a_node_without_it_says_and_then_gets_it(tmp_path: Path) -> None:
    store = tmp_path / "st\"ore 's"
    asked = shell(pack.start_command(sys.executable, "facts"), request(store))
    assert asked.returncode == pack.NOT_THERE
    version = ".".join(map(str, sys.version_info[:3]))
    assert json.loads(ours(asked.stdout)) == {"event": "agent", "python": version, "fits": True}
    import hashlib  # noqa: PLC0415

    data = pack.archive()
    header = {"store": str(store), "name": pack.name(), "sha256": hashlib.sha256(data).hexdigest()}
    cut = shell(pack.unpack_command(sys.executable), json.dumps(header).encode() + b"\n" + data[:-1])
    assert cut.returncode == 92
    assert not store.exists(), "a push that was cut off leaves nothing"
    for _ in range(2):
        pushed = shell(pack.unpack_command(sys.executable), json.dumps(header).encode() + b"\n" + data)
        assert json.loads(ours(pushed.stdout)) == {"event": "result"}, pushed.stderr
    command = pack.start_command(sys.executable, "facts")
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request(store))
        process.stdin.flush()
        assert [process.stdout.readline(), process.stdout.readline()] == [b"\n", BEGUN]
        assert json.loads(process.stdout.readline())["event"] == "result"


def test_a_caller_who_goes_before_the_request_is_whole(tmp_path: Path) -> None:
    gone = shell(pack.start_command(sys.executable, "facts"), request(tmp_path)[:20])
    assert gone.returncode == 143


def test_a_program_that_a_shell_would_change_is_not_let_through() -> None:
    for source in ("a = 'x'", "if a != b: pass", 'print("\\n")', "a | b"):
        with pytest.raises(ValueError, match="quoted"):
            pack._one_line(source)
