"""What git says and has, and what a machine tells of itself: files of /proc and /sys, netlink, nvidia-smi, builds."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.git import command, objects, pins
from sparkbuild.agent.git.command import GitError
from sparkbuild.agent.git.mirror import Mirror
from sparkbuild.agent.git.objects import BrokenMirrorError, HostileTreeError, Objects
from sparkbuild.agent.git.tree import walk
from sparkbuild.agent.image.steps import Steps
from sparkbuild.agent.lane import memory
from sparkbuild.agent.machine import gpus, hcas, mounts, netlink, network, procs, sockets, system
from sparkbuild.agent.store.pipprogress import PipProgress
from sparkbuild.agent.wire.protocol import AgentError
from tests.parsers.near import bounded, damaged
from tests.parsers.test_images import Mute

TREE = b"100644 a.txt\0" + bytes(range(20)) + b"40000 deep\0" + bytes(20) + b"120000 link\0" + bytes(range(20))
COMMIT = b"tree %s\nauthor A <a@x> 1700000000 +0000\ncommitter A <a@x> 1700000000 +0000\n\nfirst\n" % (b"4" * 40)
REFS = b"%s\tHEAD\n%s\trefs/heads/main\n%s\trefs/tags/v1^{}\n" % (b"a" * 40, b"a" * 40, b"b" * 40)
PROGRESS = b"remote: Counting objects: 100% (3/3)\rReceiving objects:  50% (1/2), 1.50 MiB | 1 MiB/s\r\nfatal: x\n"
ODD = st.sampled_from([b"1.2.3 MiB", b", ... GiB", b", 9e999 MiB", b", " + b"9" * 400 + b" GiB", b"\xff", b"", b"\0"])


@given(data=damaged(TREE), oid=st.just("a" * 40))
def test_a_tree_of_git(data: bytes, oid: str) -> None:
    with bounded(HostileTreeError):
        list(objects._items(data, oid))


class Stored(Objects):
    """Objects whose bytes a test says; each has the name that it is asked for by."""

    def __init__(self, tree: bytes, blob: bytes) -> None:
        self._bytes = {"tree": tree, "blob": blob, "commit": COMMIT}

    def _whole(self, oid: str, kind: str) -> bytes:
        del oid
        return self._bytes[kind]


@given(
    data=damaged(TREE.replace(b"40000 deep", b"100644 deep")), link=damaged(b"../deep/a.txt"), commit=damaged(COMMIT)
)
def test_the_files_of_a_commit(data: bytes, link: bytes, commit: bytes) -> None:
    stored = Stored(data, link)
    stored._bytes["commit"] = commit
    with bounded(HostileTreeError, BrokenMirrorError, AgentError, RecursionError):
        walk(stored, "a" * 40, {})
    with bounded(BrokenMirrorError):
        stored.commit("a" * 40)


def test_a_tree_of_trees_ends() -> None:
    """A tree that holds itself a thousand times at each level is as many files as one says."""
    inner = b"".join(b"40000 %d\0" % number + bytes(20) for number in range(1000))
    with bounded(), pytest.raises(HostileTreeError):
        walk(Stored(inner, b""), "a" * 40, {})


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a git and an nvidia-smi that say what stands in the files beside them."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("git", "nvidia-smi"):
        (folder / name).write_text(f"#!/bin/sh\n/bin/cat {folder}/said >&2\nexec /bin/cat {folder}/out\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "said", [PROGRESS, b"Receiving objects: , ... MiB\r" * 9000, b"Receiving objects: , 1.2.3 MiB" * 9000]
)
def test_a_git_that_says_odd_things_is_heard_to_its_end(
    programs: Path, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of a server's progress end nobody who listens: a pipe that nobody empties is a git that hangs."""
    (programs / "said").write_bytes(said)
    (programs / "out").write_bytes(b"done\n")
    monkeypatch.setenv("PATH", str(programs))
    with bounded():
        assert command.git("", "x", reporter=Mute()).text == "done"


@given(data=damaged(PROGRESS), odd=ODD)
def test_what_git_says_on_its_way(data: bytes, odd: bytes) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe:
        os.write(write, (data + b"Receiving objects: 5%" + odd)[:60_000])
        os.close(write)
        tail = bytearray()
        with bounded():
            command._listen(pipe, tail, Mute())
            command._said(bytes(tail))
    with bounded(AgentError):
        command.refuse(GitError(tail.decode(errors="replace")), "https://x.example/y.git")


@given(out=damaged(REFS))
def test_the_refs_of_a_repository(out: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch, bounded(AgentError):
        patch.setattr("sparkbuild.agent.git.mirror.git", lambda *_: command.Output(out))
        Mirror("/store", "https://x.example/y.git", "/", Mute()).refs("HEAD")


@given(out=damaged(b"submodule.x.path\nlib/x\0submodule.x.url\n../x.git\0core.bare\ntrue\0"), url=st.text(max_size=20))
def test_the_submodules_of_a_tree(out: bytes, url: str) -> None:
    class Modules(Stored):
        git_dir = "/x"

    mirror: Any = Mirror("/store", "https://x.example/y.git", "/", Mute())
    with pytest.MonkeyPatch.context() as patch, bounded(HostileTreeError):
        patch.setattr(pins, "git", lambda *_: command.Output(out))
        found = pins._gitmodules(mirror, Modules(b"100644 .gitmodules\0" + bytes(20), b""), "a" * 40)
        for one in (*found.values(), url):
            pins.joined("https://x.example/y.git", one)


SMI = b"0, NVIDIA GB10, GPU-abc, 580.95.05\n1, x, y, 580\n"
NUMBER_WORDS = st.sampled_from(["\u00b2", "9" * 5000, "-1", "inf", "nan", "1e999", "\u0663"])


@given(data=damaged(SMI), odd=NUMBER_WORDS)
def test_nvidia_smi(data: bytes, odd: str) -> None:
    text = data.decode(errors="replace")
    with bounded():
        gpus.parse(text + f"{odd}, a, b, c\n")
        memory.of_gpu_rows(text + f"5, {odd}\n{odd}, 5\n", {5})


@given(data=damaged(b"MemTotal:       131072 kB\nMemAvailable:  5 kB\nSwapTotal: 0 kB\n"), odd=NUMBER_WORDS)
def test_meminfo_and_os_release(data: bytes, odd: str) -> None:
    with bounded():
        system.memory(data.decode(errors="replace") + f"\nMemTotal: {odd} kB\n")
        system.release(data.decode(errors="replace") + 'NAME="x"\nVERSION_ID=' + odd)


@given(data=damaged(b"22 1 0:21 / /proc rw shared:5 - proc proc rw\n30 1 8:1 / /a\\040b rw - ext4 /dev/sda1 rw\n"))
def test_mountinfo(data: bytes) -> None:
    with bounded():
        mounts.mount_of("/a b/c", mounts.parse(data.decode(errors="replace")))


def _message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


DUMP = _message(
    20, struct.pack("=BBBBI", 2, 24, 0, 0, 2) + struct.pack("=HH", 8, 2) + bytes([10, 0, 0, 11])
) + _message(3, bytes(4))


@given(data=damaged(DUMP))
def test_netlink(data: bytes) -> None:
    with bounded(ValueError, OSError):  # told as the problem of that look
        network.read(netlink.messages(data))


SOCKET = struct.pack("!BBBBHH16s16s", 2, 10, 0, 0, 8000, 0, bytes([127, 0, 0, 1]) + bytes(12), bytes(16))


@given(data=damaged(_message(20, SOCKET + bytes(20) + struct.pack("=II", 1000, 12345)) + _message(3, bytes(4))))
def test_the_sockets_of_netlink(data: bytes) -> None:
    with bounded(ValueError, OSError):  # the table is read then
        for listening in sockets.read(netlink.messages(data)).values():
            assert all(isinstance(listener.loopback, bool) for listener in listening.values())


@given(gid=damaged(b"0000:0000:0000:0000:0000:ffff:0a00:000b\n"))
def test_a_gid(tmp_path_factory: pytest.TempPathFactory, gid: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "infiniband"
    port = folder / "mlx5_0/ports/1"
    for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / name).mkdir(parents=True, exist_ok=True)
        (port / name / "3").write_bytes(gid)
    with bounded():
        hcas.hcas(str(folder))


TCP = b"""  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0 100 0 0 10 0
"""


@given(value=st.sampled_from([b"lanes/a/1.log", b"\xff", b"", b"=", b"\n" * 50]))
def test_the_environment_of_others(value: bytes) -> None:
    """Whoever is started with odd variables is found by the real /proc."""
    with subprocess.Popen(["/bin/cat"], stdin=-1, stdout=-3, env={b"SPARKBUILD_ODD": value}) as process:
        with bounded():
            procs.marks("SPARKBUILD_ODD", [process.pid])
        process.kill()


@given(data=damaged(TCP))
def test_the_listeners_of_a_machine(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "tcp"
    path.write_bytes(data)
    with bounded():
        for listening in sockets.by_table(str(path)).values():
            assert all(isinstance(listener.loopback, bool) for listener in listening.values())


@given(data=damaged(b"#5 [stage-0 2/4] RUN make\n#5 0.123 hello\n#5 ERROR: process failed\n#6 [internal] load\n"),
       odd=NUMBER_WORDS)  # fmt: skip
def test_the_words_of_a_build(data: bytes, odd: str) -> None:
    steps = Steps()
    with bounded():
        for line in (
            *data.decode(errors="replace").split("\n"),
            f"#5 [{odd}/{odd}] x",
            f"#{odd} 0.1 x",
            "#7 [1/" + odd,
        ):
            steps.feed(line)
        assert steps.failed is None or steps.failed.title


@given(
    data=damaged(b"  Downloading numpy-2.3.0-cp311-cp311-linux_x86_64.whl (16.6 MB)\nUsing cached x\n"),
    odd=NUMBER_WORDS,
)
def test_the_words_of_pip(tmp_path_factory: pytest.TempPathFactory, data: bytes, odd: str) -> None:
    progress = PipProgress(2)
    with bounded():
        for line in (*data.decode(errors="replace").split("\n"), f"Downloading x.whl ({odd} GB)"):
            progress.line(line)
        progress.amount(str(tmp_path_factory.getbasetemp() / "none"))
