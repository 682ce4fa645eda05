"""Zstandard, by whatever a node has for it: the program, the library in a child, Python's own module, or nothing."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparkbuild.agent.disk import zstd
from sparkbuild.agent.image.saved import uncompressed
from sparkbuild.agent.wire.protocol import AgentError

pytestmark = pytest.mark.skipif(shutil.which("zstd") is None, reason="apt-get install zstd: it makes the test's input")
BIG = b"".join(random.Random(7).randbytes(1 << 16) * 4 for _ in range(20))


def packed(content: bytes, *options: str) -> bytes:
    return subprocess.run(["zstd", "-c", "-q", *options], input=content, capture_output=True, check=True).stdout


@pytest.fixture(params=["program", "library"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ways that there are before Python 3.14."""
    monkeypatch.setattr(zstd, "_zstd", None)
    if request.param == "library":
        monkeypatch.setattr(zstd.shutil, "which", lambda _name: None)
        command = zstd._command()
        if command is None:
            pytest.skip("there is no libzstd.so.1 here")
        assert command[0] == sys.executable
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("content", [b"", b"x", BIG, b"\0" * (9 << 20)], ids=["empty", "byte", "big", "zeros"])
def test_what_was_packed_comes_out(content: bytes) -> None:
    for options in (["-1"], ["-19"], ["--no-check"]):
        with zstd.unpacked(io.BytesIO(packed(content, *options))) as stream:
            assert stream.read() == content
    several = packed(content[: len(content) // 2]) + packed(content[len(content) // 2 :])
    with zstd.unpacked(io.BytesIO(several)) as stream:
        assert stream.read() == content


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("how", ["cut", "flipped", "followed", "other"])
def test_what_is_no_whole_stream_is_refused(how: str) -> None:
    good = packed(BIG)
    middle = len(good) // 2
    bad = {
        "cut": good[:middle],
        "flipped": good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :],
        "followed": good + b"more",
        "other": b"no zstd at all",
    }[how]
    with pytest.raises(ValueError, match="not a whole zstd stream"), zstd.unpacked(io.BytesIO(bad)) as stream:
        stream.read()


@pytest.mark.usefixtures("way")
def test_an_error_of_the_source_is_told_as_it_is() -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 1000:
                raise OSError(5, "Input/output error")
            return super().read(min(size or 600, 600))

    with pytest.raises(OSError, match="Input/output error"), zstd.unpacked(Breaking(packed(BIG))) as stream:
        stream.read()


@pytest.mark.usefixtures("way")
def test_a_reader_that_stops_leaves_no_process() -> None:
    stream = zstd.unpacked(io.BytesIO(packed(BIG * 8)))
    assert stream.read(10) == BIG[:10]
    process = stream.raw._process  # type: ignore[attr-defined]
    stream.close()
    assert process.poll() is not None


def test_a_layer_is_unpacked_by_its_first_bytes() -> None:
    assert uncompressed(io.BytesIO(packed(BIG))).read() == BIG


def test_a_node_without_any_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd, "_zstd", None)
    monkeypatch.setattr(zstd, "_command", lambda: None)
    with pytest.raises(AgentError) as caught:
        zstd.unpacked(io.BytesIO(packed(b"x")))
    assert caught.value.fields["next"] == "apt-get install zstd there, then run again"


@pytest.mark.skipif(not Path("/var/cache/sparkbuild-rack/debian/root").exists(), reason="no newer Python was fetched")
def test_pythons_own_module() -> None:
    """In the Debian that the rack's engines live in, whose Python has it or not."""
    root = "/var/cache/sparkbuild-rack/debian/root"
    code = "import io, sys; sys.path.insert(0, '/x'); from sparkbuild.agent.disk import zstd; "
    code += "sys.stdout.buffer.write(zstd.unpacked(io.BytesIO(sys.stdin.buffer.read())).read())"
    inside = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2/mnt" && exec chroot "$2" python3 -c "$3"', "sh"]
    done = subprocess.run(
        [*inside, str(Path(zstd.__file__).parents[3]), root, code.replace("/x", "/mnt")],
        input=packed(BIG), capture_output=True, check=False,
    )  # fmt: skip
    assert done.stdout == BIG, done.stderr.decode()
