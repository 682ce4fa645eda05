"""Each thing that a rack's node can do, for real: ssh, docker, network faults, power, disks, keys, users."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.rack import pythons
from tests.rack.image import Image
from tests.rack.proc import RackError, wait_for
from tests.rack.rack import Rack, _keeper, _start_keeper

pytestmark = pytest.mark.usefixtures("possible")


def test_ssh_in_and_out(rack: Rack) -> None:
    first, second = rack.nodes
    awkward = ["printf", "%s|", "a b", "it's", '"$HOME"', "two\nlines", ""]
    assert first.ssh(awkward).out == 'a b|it\'s|"$HOME"|two\nlines||'
    assert first.ssh(["sh", "-c", "cat; exit 7"], text="from here").out == "from here"
    assert first.ssh(["sh", "-c", "exit 7"]).code == 7
    assert first.ssh(["ssh", second.name, "hostname"]).out == "dgx2\n"
    assert second.run(["ping", "-c", "1", "-W", "2", first.name]).code == 0


def test_what_tests_are_told_of_a_node(rack: Rack) -> None:
    first, second = rack.nodes
    assert (first.name, first.user, first.port) == ("dgx1", "root", 22)
    assert first.host_key_fingerprint != second.host_key_fingerprint
    shown = subprocess.run(["ssh-keygen", "-lf", "-"], input=first.host_key, capture_output=True, text=True, check=True)
    assert first.host_key_fingerprint in shown.stdout
    assert first.key_file.stat().st_mode & 0o077 == 0
    with socket.create_connection((first.address, first.port), timeout=5) as connection:
        assert connection.recv(7) == b"SSH-2.0"


def test_a_node_is_a_machine_of_its_own(rack: Rack, tmp_path: Path) -> None:
    first, second = rack.nodes
    (tmp_path / "here").write_text("only here")
    assert first.run(["cat", str(tmp_path / "here")]).code != 0
    first.run(["sh", "-c", "echo changed > /etc/motd; echo a > /srv/a; echo b > /dev/shm/b; touch /tmp/c"], check=True)
    assert second.run(["sh", "-c", "cat /etc/motd; ls /srv /dev/shm /tmp"]).out.count("changed") == 0
    assert second.run(["sh", "-c", "ls /srv /dev/shm /tmp | grep -E '^[abc]$'"]).out == ""
    assert not Path("/srv/a").exists()
    assert not Path("/dev/shm/b").exists()
    assert first.run(["touch", "/usr/x"]).code != 0, "programs are the machine's, and safe"
    ids = [node.run(["cat", "/etc/machine-id", "/proc/sys/kernel/random/boot_id"]).out.split() for node in rack.nodes]
    assert not set(ids[0]) & set(ids[1])
    assert first.run(["ls", "/sys/class/net"]).out.split() == ["docker0", "eth0", "lo"]
    assert first.path("/srv/a").read_text() == "a\n"


def test_no_way_leads_out(rack: Rack) -> None:
    assert "default" not in rack.nodes[0].run(["ip", "route"]).out
    lookup = "import socket; socket.getaddrinfo('example.org', 80)"
    began = time.monotonic()
    assert rack.nodes[0].run(["/usr/bin/python3", "-c", lookup]).code != 0
    reach = "import socket; socket.create_connection(('203.0.113.1', 80), 60)"
    assert "unreachable" in rack.nodes[0].run(["/usr/bin/python3", "-c", reach]).err
    assert time.monotonic() - began < 20, "refused at once, not after a time limit"


def test_cut_and_heal(rack: Rack) -> None:
    node = rack.nodes[0]
    node.cut()
    try:
        began = time.monotonic()
        lost = node.ssh(["true"], options=["ConnectTimeout=1"])
        assert lost.code == 255
        assert "timed out" in lost.err or "No route" in lost.err
        assert 0.5 < time.monotonic() - began < 6, "packets are lost: nobody refuses"
        assert node.run(["hostname"]).out == "dgx1\n", "without its network it goes on"
    finally:
        node.heal()
    assert node.ssh(["true"]).code == 0


def test_rate(rack: Rack) -> None:
    node = rack.nodes[0]
    data = os.urandom(2_000_000)

    def timed(argv: list[str], text: bytes = b"") -> float:
        began = time.monotonic()
        assert node.ssh(argv, text=text).code == 0
        return time.monotonic() - began

    try:
        node.rate(16)  # 2 MB/s
        took = [timed(["wc", "-c"], data), timed(["head", "-c", "2000000", "/dev/urandom"])]
        assert 0.7 < min(took) < max(took) < 4, f"2 MB to and from the node at 2 MB/s took {took} s"
    finally:
        node.rate(None)
    assert timed(["wc", "-c"], data) < 0.7 * took[0], "no limit is left"


def test_power_failure_and_boot(rack: Rack, tiny: Image) -> None:
    node, other = rack.nodes
    key, image = node.host_key, node.docker("image", "inspect", "--format", "{{.Id}}", tiny.tag).out
    boot_id = node.run(["cat", "/proc/sys/kernel/random/boot_id"]).out
    node.docker("run", "--detach", "--name", "sleeper", tiny.tag, "sleep", "1000")
    node.run(["sh", "-c", "echo kept > /srv/kept; echo gone > /run/gone; useradd -m kim"], check=True)
    node.kill()
    assert not node.is_on()
    with pytest.raises(RackError, match="dgx1 is off"):
        node.run(["true"])
    assert node.ssh(["true"], options=["ConnectTimeout=1"]).code == 255
    assert other.ssh(["true"]).code == 0
    node.kill()
    node.boot()
    assert node.run(["cat", "/srv/kept"]).out == "kept\n"
    assert node.run(["id", "-un", "kim"]).out == "kim\n"
    assert node.run(["cat", "/run/gone"]).code != 0
    assert node.run(["cat", "/proc/sys/kernel/random/boot_id"]).out != boot_id
    assert node.host_key == key
    assert node.ssh(["true"]).code == 0, "the strict client knows it again"
    assert node.docker("image", "inspect", "--format", "{{.Id}}", tiny.tag).out == image
    assert "Exited" in node.docker("ps", "--all", "--format", "{{.Names}} {{.Status}}").out
    node.docker("rm", "sleeper")
    assert node.docker("run", "--rm", tiny.tag, "cat", "/hello.txt").out == "hello\n"


def test_a_full_disk(rack: Rack) -> None:
    node = rack.nodes[1]
    assert os.statvfs(node.path("/srv")).f_blocks * os.statvfs(node.path("/srv")).f_frsize < 300 << 20
    write = ["dd", "if=/dev/zero", "of=/srv/x", "bs=64k", "count=32", "conv=fsync"]
    node.fill_disk(leave_bytes=1_000_000)
    try:
        assert "No space left" in node.run(write).err
        wrote = node.path("/srv/x").stat().st_size
        assert 800_000 < wrote < 1_100_000
        with pytest.raises(OSError, match="No space") as full:
            node.path("/root/y").write_bytes(bytes(1 << 20))
        assert full.value.errno == errno.ENOSPC
    finally:
        node.free_disk()
        node.run(["rm", "-f", "/srv/x", "/root/y"])
    assert node.run(write).code == 0


def test_a_disk_that_is_not_limited_is_not_filled() -> None:
    with Rack.up(1, docker=False) as rack, pytest.raises(RackError, match="disk_mb"):
        rack.nodes[0].fill_disk()


def test_a_changed_host_key_is_refused(rack: Rack) -> None:
    node, other = rack.nodes
    old = node.host_key_fingerprint
    known = rack.known_hosts.read_text()
    saved = [(node.folder / name, (node.folder / name).read_text()) for name in ("host_key", "host_key.pub")]
    node.rotate_host_key()
    try:
        assert node.host_key_fingerprint != old
        refused = node.ssh(["true"])
        assert refused.code == 255
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.err
        assert node.host_key_fingerprint in refused.err
        assert "CHANGED" in other.run(["ssh", node.name, "true"]).err
        rack.known_hosts.write_text(f"{node.name},{node.address} {node.host_key}\n")
        assert node.ssh(["true"]).code == 0
    finally:
        rack.known_hosts.write_text(known)
        for path, text in saved:
            path.write_text(text)
        node.kill()
        node.boot()
    assert node.ssh(["true"]).code == 0


def test_users(rack: Rack) -> None:
    node = rack.nodes[0]
    node.add_user("with", "docker")
    node.add_user("without")
    assert node.ssh(["docker", "ps", "--quiet"], user="with").code == 0
    assert "permission denied" in node.ssh(["docker", "ps"], user="without").err
    assert node.ssh(["id", "-un"], user="without").out == "without\n"
    assert "Permission denied" in node.ssh(["true"], user="nobody-here").err


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_pythons(rack: Rack, version: str) -> None:
    path = rack.nodes[0].python(version)
    if path is None:
        pytest.skip(f"this machine has no Python {version}")
    script = "import sys, ssl, json; print('%d.%d' % sys.version_info[:2])"
    assert rack.nodes[0].ssh([path, "-I", "-c", script]).out == f"{version}\n"


def test_a_python_nobody_has() -> None:
    assert pythons.find("2.1") is None


def test_programs_on_a_node_end_at_their_time_limit(rack: Rack) -> None:
    node = rack.nodes[0]
    with pytest.raises(RackError, match="not finished after"):
        node.run(["sleep", "12345"], timeout=0.5)
    wait_for("it ends", lambda: "12345" not in node.run(["ps", "-eo", "args"]).out.replace("ps -eo", ""), 5)


def test_a_name_that_no_node_has(rack: Rack) -> None:
    with pytest.raises(RackError, match="no node dgx9: this rack has dgx1, dgx2"):
        rack.node("dgx9")


def test_a_node_that_cannot_boot_says_why(rack: Rack) -> None:
    node = rack.nodes[1]
    node.kill()
    image = node.folder / "disk.img"
    image.rename(node.folder / "kept.img")
    image.write_bytes(bytes(1 << 20))
    try:
        with pytest.raises(RackError, match=r"(?s)dgx2 did not.*mount"):
            node.boot()
    finally:
        (node.folder / "kept.img").replace(image)
        node.boot()
    assert node.ssh(["true"]).code == 0


@pytest.mark.parametrize("tied", [False, True])
def test_a_keeper_that_is_told_to_end_while_it_starts_ends(tmp_path: Path, tied: bool) -> None:
    with open(tmp_path / "lock", "w", encoding="utf-8") as held:
        process = _start_keeper(tmp_path, held.fileno(), tied)
    try:
        keeper = _keeper(process, tmp_path)
        keeper.signal(signal.SIGTERM)
        assert keeper.pid != process.pid
        wait_for("the keeper ends", lambda: not keeper.alive(), 15)
    finally:
        process.kill()  # and with it the keeper
        if process.stdin:
            process.stdin.close()
        process.wait()
