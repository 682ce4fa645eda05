"""The slow NAS: what it shows, how slow, how stale and how wrong it can be, and what it tells of its readers."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rack.nas import Nas
from tests.rack.node import Node
from tests.rack.proc import RackError, wait_for
from tests.rack.rack import Rack

pytestmark = pytest.mark.usefixtures("nas_python")
MB = 1_000_000


@pytest.fixture(scope="module")
def pair(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    """Two nodes; no docker is needed."""
    with Rack.up(2, docker=False) as rack:
        yield rack


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder behind the NAS."""
    (tmp_path / "models/deep").mkdir(parents=True)
    (tmp_path / "models/a.bin").write_bytes(bytes(range(256)) * 8192)  # 2 MiB
    (tmp_path / "models/deep/b.txt").write_text("b\n")
    (tmp_path / "models/link").symlink_to("deep/b.txt")
    return tmp_path


def content(node: Node, path: str) -> bytes | int:
    """A file as a program on the node reads it; the errno when it cannot."""
    script = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
    wrapped = f"try:\n    {script}\nexcept OSError as error:\n    sys.exit(error.errno)"
    done = node.run(["sh", "-c", '/usr/bin/python3 -c "$1" "$2" > /tmp/out', "sh", wrapped, path])
    return done.code or node.path("/tmp/out").read_bytes()


@pytest.fixture
def mounted(pair: Rack, source: Path) -> Iterator[Nas]:
    """A fast NAS at /mnt/nas of dgx1."""
    nas = pair.nas(source)
    nas.mount(pair.nodes[0], "/mnt/nas")
    yield nas
    nas.unmount(pair.nodes[0], "/mnt/nas")


def test_it_shows_the_folder_and_takes_nothing(pair: Rack, mounted: Nas, source: Path) -> None:
    node = pair.nodes[0]
    assert node.run(["ls", "-A", "/mnt/nas/models"]).out.split() == ["a.bin", "deep", "link"]
    assert content(node, "/mnt/nas/models/a.bin") == (source / "models/a.bin").read_bytes()
    assert node.run(["readlink", "/mnt/nas/models/link"]).out == "deep/b.txt\n"
    assert node.run(["cat", "/mnt/nas/models/link"]).out == "b\n"
    assert node.run(["cat", "/mnt/nas/none"]).err.endswith("No such file or directory\n")
    assert "Read-only" in node.run(["touch", "/mnt/nas/x"]).err
    shown = node.run(["stat", "-c", "%i %s %Y", "/mnt/nas/models/a.bin"]).out.split()
    real = (source / "models/a.bin").stat()
    assert shown == [str(real.st_ino), str(real.st_size), str(int(real.st_mtime))]
    assert node.ssh(["cat", "/mnt/nas/models/deep/b.txt"]).out == "b\n", "logins see it too"
    assert pair.nodes[1].run(["ls", "/mnt"]).out == "", "the other node does not have it"
    assert mounted.is_mounted(node, "/mnt/nas")


def test_latency(pair: Rack, mounted: Nas) -> None:
    many = "import os, time; t = time.monotonic()\nfor n in range(20): os.path.exists('/mnt/nas/models/%d' % n)\n"
    many += "print(time.monotonic() - t)"
    quick = float(pair.nodes[0].run(["/usr/bin/python3", "-c", many], check=True).out)
    mounted.slow(latency_ms=15)
    slow = float(pair.nodes[0].run(["/usr/bin/python3", "-c", many], check=True).out)
    assert slow > 20 * 0.015
    assert slow > quick


def test_bandwidth_is_shared(pair: Rack, source: Path) -> None:
    nas = pair.nas(source, mb_per_s=4)
    for node in pair.nodes:
        nas.mount(node, "/mnt/shared")
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda node: content(node, "/mnt/shared/models/a.bin"), pair.nodes))
    took = time.monotonic() - began
    assert 1.0 <= took < 10, f"two readers of 2.1 MB each, 4 MB/s in all, took {took:.2f} s"
    nas.slow(mb_per_s=0)
    for node in pair.nodes:
        nas.unmount(node, "/mnt/shared")


def test_attributes_are_stale_and_contents_are_not(pair: Rack, source: Path) -> None:
    node, nas = pair.nodes[0], pair.nas(source, attr_s=3, entry_s=3, negative_s=3)
    nas.mount(node, "/mnt/old")
    size = ["stat", "-c", "%s", "/mnt/old/models/deep/b.txt"]
    assert node.run(size).out == "2\n"
    assert node.run(["stat", "/mnt/old/new"]).code != 0
    began = time.monotonic()
    (source / "models/deep/b.txt").write_text("longer\n")
    (source / "new").write_text("")
    assert (node.run(size).out, node.run(["stat", "/mnt/old/new"]).code) == ("2\n", 1)
    assert time.monotonic() - began < 3, "this machine is too slow for the test"
    assert "new" in node.run(["ls", "/mnt/old"]).out, "listing a folder asks the NAS"
    wait_for("both are seen", lambda: (node.run(size).out, node.run(["stat", "/mnt/old/new"]).code) == ("7\n", 0), 5)
    assert time.monotonic() - began > 2, "only after a while"
    (source / "models/deep/b.txt").write_text("changed")
    assert node.run(["cat", "/mnt/old/models/deep/b.txt"]).out == "changed", "opening asks the NAS"
    nas.unmount(node, "/mnt/old")


@pytest.mark.parametrize("kind", ["EIO", "ESTALE"])
def test_a_read_fails_once(pair: Rack, mounted: Nas, source: Path, kind: str) -> None:
    mounted.fail("/models/a.bin", kind, at=1_500_000)  # type: ignore[arg-type]
    path = "/mnt/nas/models/a.bin"
    assert content(pair.nodes[0], path) == getattr(errno, kind)
    assert content(pair.nodes[0], path) == (source / "models/a.bin").read_bytes(), "the next one reads all of it"


def test_a_file_ends_early_twice(pair: Rack, mounted: Nas, source: Path) -> None:
    mounted.fail("/models/a.bin", "short", at=1_000_001, times=2)
    whole = (source / "models/a.bin").read_bytes()
    found = [content(pair.nodes[0], "/mnt/nas/models/a.bin") for _ in range(3)]
    assert found == [whole[:1_000_001], whole[:1_000_001], whole]


def test_a_bit_flips_until_it_is_mended(pair: Rack, mounted: Nas, source: Path) -> None:
    mounted.fail("/models/a.bin", "flip", at=700_000, times=None)
    whole = (source / "models/a.bin").read_bytes()
    for _ in range(2):
        found = content(pair.nodes[0], "/mnt/nas/models/a.bin")
        assert isinstance(found, bytes)
        assert [at for at in range(len(whole)) if found[at] != whole[at]] == [700_000]
    mounted.mend()
    assert content(pair.nodes[0], "/mnt/nas/models/a.bin") == whole


def test_reads_are_counted_by_path_and_node(pair: Rack, source: Path) -> None:
    nas = pair.nas(source, direct_io=True)
    for node in pair.nodes:
        nas.mount(node, "/mnt/counted")
    part = ["dd", "if=/mnt/counted/models/a.bin", "of=/dev/null", "bs=1000", "skip=7", "count=3"]
    pair.nodes[1].run(part, check=True)
    assert [(read.node, read.path, read.offset) for read in nas.reads()] == [
        ("dgx2", "/models/a.bin", offset) for offset in (7000, 8000, 9000)
    ]
    pair.nodes[0].run(["cat", "/mnt/counted/models/deep/b.txt"], check=True)
    assert nas.bytes_read() == 3002
    assert nas.bytes_read(node="dgx1") == nas.bytes_read("/models/deep/b.txt") == 2
    nas.forget()
    assert nas.bytes_read() == 0
    nas.fail("/models/a.bin", "EIO", at=0, times=2)
    script = "import os; fd = os.open('/mnt/counted/models/a.bin', os.O_RDONLY)\nfor _ in range(3):\n    try:\n"
    script += "        print(len(os.pread(fd, 10, 0)))\n    except OSError as error:\n        print(error.errno)"
    assert pair.nodes[0].run(["/usr/bin/python3", "-c", script]).out.split() == ["5", "5", "10"]
    for node in pair.nodes:
        nas.unmount(node, "/mnt/counted")


def test_read_twice_through_the_page_cache(pair: Rack, mounted: Nas) -> None:
    assert content(pair.nodes[0], "/mnt/nas/models/a.bin")
    assert mounted.bytes_read("/models/a.bin") == 2 << 20
    assert content(pair.nodes[0], "/mnt/nas/models/a.bin")
    assert mounted.bytes_read("/models/a.bin", "dgx1") == 4 << 20, "an open file is not served from the old one's cache"


def test_on_the_machine_itself(pair: Rack, source: Path, tmp_path: Path) -> None:
    nas = pair.nas(source / "models")
    at = tmp_path / "it's here"
    nas.mount(None, at)
    assert sorted(os.listdir(at)) == ["a.bin", "deep", "link"]
    assert (at / "deep/b.txt").read_text() == "b\n"
    assert nas.bytes_read(node="host") == 2
    nas.unmount(None, at)
    assert os.listdir(at) == []
    with pytest.raises(RackError, match="not mounted"):
        nas.unmount(None, at)


def test_a_crash(pair: Rack, source: Path) -> None:
    node, nas = pair.nodes[0], pair.nas(source)
    nas.mount(node, "/mnt/dead")
    nas.crash(node)
    wait_for("it is gone", lambda: "not connected" in node.run(["ls", "/mnt/dead"]).err)
    node.run(["umount", "-l", "/mnt/dead"], check=True)


def test_what_cannot_be_mounted(pair: Rack, source: Path) -> None:
    with pytest.raises(RackError, match="there is none at"):
        pair.nas(source / "none")
    with pytest.raises(RackError, match=r"(?s)no NAS at /proc/x of dgx1|mkdir"):
        pair.nas(source).mount(pair.nodes[0], "/proc/x")


def test_a_node_without_power_has_no_mount_when_it_is_back(pair: Rack, source: Path) -> None:
    node, nas = pair.nodes[1], pair.nas(source)
    nas.mount(node, "/mnt/lost")
    node.kill()
    assert not nas.is_mounted(node, "/mnt/lost")
    node.boot()
    assert node.run(["ls", "/mnt/lost"]).out == ""
    nas.mount(node, "/mnt/lost")
    assert node.run(["ls", "/mnt/lost"]).out == "models\n"
