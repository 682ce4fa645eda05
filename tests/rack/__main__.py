"""`python -m tests.rack`: a rack for people."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.rack import engines, foreign, needs
from tests.rack.memory import pss_mb
from tests.rack.node import Node
from tests.rack.proc import RackError
from tests.rack.rack import Rack, running

ABOUT = """\
A rack of DGX-like nodes on this machine, for trying things out and breaking them: each node has a real sshd, a real
dockerd with a store of its own, its own disk, and an address on a network that only this machine reaches.

    python -m tests.rack up 4           bring up dgx1 to dgx4; says how to ssh in
    python -m tests.rack exec dgx1 docker ps
    python -m tests.rack cut dgx2       pull dgx2's cable out; `heal` puts it back
    python -m tests.rack kill dgx3      power failure; `boot` switches it on again with the same disk
    python -m tests.rack down           end and remove everything

Needs root. Nothing of the machine is changed but for one network link (sprackN) while a rack is up.
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m tests.rack", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--rack", metavar="N", help="which rack, when more than one is up (see `status`)")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, about: str, *, node: bool = False) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        if node:
            made.add_argument("node", metavar="NODE", help="dgx1, dgx2, ...")
        return made

    up = command("up", "bring up a rack")
    up.add_argument("n", type=int, nargs="?", default=2, metavar="NODES", help="how many nodes (default: 2)")
    up.add_argument("--disk", type=int, metavar="MB", help="give each node a disk of this size (default: share ours)")
    up.add_argument("--no-docker", action="store_true", help="leave dockerd out")
    up.add_argument("--engine", choices=tuple(engines.KINDS), help="which docker the nodes have (see `engines`)")
    up.add_argument("--arm64", action="append", default=[], metavar="NODE", help="a node of that machine, under qemu")
    command("down", "end a rack and remove all of it")
    command("status", "show the racks that are up")
    command("engines", "fetch the docker engines that a rack can have, and print what they are; needs network")
    command("arm64", "fetch the system of nodes that are arm64, and print what it is; needs network and minutes")
    wanted = command("needs", "print the Debian packages that are missing for a rack, on one line")
    wanted.add_argument("--long", action="store_true", help="those that only long tests need, too")
    run = command("exec", "run a command on a node as root, without ssh (also when its cable is out)", node=True)
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD...")
    ssh = command("ssh", "log in to a node, or run a command there, by ssh", node=True)
    ssh.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD...")
    command("cut", "pull a node's network cable out", node=True)
    command("heal", "put a node's network cable back", node=True)
    rate = command("rate", "limit a node's network in each direction", node=True)
    rate.add_argument("mbit", metavar="MBIT|off", help="megabits per second, or off")
    command("kill", "power failure: end every process of a node at once; its disk stays", node=True)
    command("boot", "switch a node on again", node=True)
    dockerd = command("dockerd", "stop or start a node's dockerd")
    dockerd.add_argument("action", choices=("stop", "start"))
    dockerd.add_argument("node", metavar="NODE")
    fill = command("fill", "fill a node's disk up (a rack brought up with --disk)", node=True)
    fill.add_argument("--leave", type=float, default=0, metavar="MB", help="leave this much free (default: 0)")
    fill.add_argument("--undo", action="store_true", help="make it free again")
    command("rotate-key", "give a node a new ssh host key, as after a reinstallation", node=True)
    nas = command("nas", "mount a folder of this machine on a node as a slow, read-only NAS")
    nas_parser(nas)
    return top


def nas_parser(nas: argparse.ArgumentParser) -> None:
    actions = nas.add_subparsers(dest="action", required=True, metavar="ACTION")
    mount = actions.add_parser("mount", help="mount it")
    mount.add_argument("node", metavar="NODE|host", help="a node, or host for this machine")
    mount.add_argument("source", metavar="FOLDER", help="the folder of this machine to show")
    mount.add_argument("path", metavar="PATH", help="where on the node")
    mount.add_argument("--latency", type=float, default=0, metavar="MS", help="added to each call")
    mount.add_argument("--rate", type=float, default=0, metavar="MB/S", help="bandwidth, shared by all its readers")
    mount.add_argument(
        "--stale", type=float, default=0, metavar="S", help="how long old attributes and names are shown"
    )
    unmount = actions.add_parser("unmount", help="take it away")
    unmount.add_argument("node", metavar="NODE|host")
    unmount.add_argument("path", metavar="PATH")
    fail = actions.add_parser("fail", help="let a read go wrong, on every NAS of the rack")
    fail.add_argument("path", metavar="PATH", help="the file, as the NAS has it: /models/x")
    fail.add_argument("kind", choices=("EIO", "ESTALE", "short", "flip"))
    fail.add_argument("at", type=int, metavar="BYTE")
    fail.add_argument("--times", type=int, metavar="N", help="only the first N readers meet it (default: all)")
    actions.add_parser("reads", help="show how much was read of which file, by whom")


def main(argv: list[str] | None = None) -> int:
    given = parser().parse_args(argv)
    try:
        return act(given)
    except RackError as error:
        print(error, file=sys.stderr)
        return 1


def act(given: argparse.Namespace) -> int:
    if given.command == "needs":
        print(*needs.missing_packages(long=given.long))
        return 0
    if given.command == "engines":
        engines.fetch()
        for name in engines.KINDS:
            print(f"{name:14} {engines.versions(name)}")
        return 0
    if given.command == "arm64":
        foreign.fetch()
        print(f"{given.command:14} {foreign.shown()}")
        return 0
    if given.command == "status":
        for rack in running():
            show(rack)
        return 0
    if given.command == "up":
        began = time.monotonic()
        docker = not given.no_docker
        rack = Rack.start(given.n, disk_mb=given.disk, docker=docker, engine=given.engine, arm64=given.arm64)
        took = time.monotonic() - began
        show(rack)
        print(f"{given.n} nodes up in {took:.1f} s; log in: ssh -F {rack.ssh_config} dgx1")
        return 0
    rack = chosen(given.rack)
    if given.command == "down":
        rack.down()
    elif given.command == "nas":
        nas(rack, given)
    else:
        on_node(rack.node(given.node), given)
    return 0


def on_node(node: Node, given: argparse.Namespace) -> None:
    match given.command:
        case "exec":
            command = [*node.inside(), *(given.argv or ["bash", "-i"])]
            os.execvp(command[0], command)
        case "ssh":
            os.execvp("ssh", [*node.ssh_command(), *given.argv])
        case "cut" | "heal" | "kill" | "boot" as name:
            getattr(node, name)()
        case "rate":
            node.rate(None if given.mbit == "off" else float(given.mbit))
        case "dockerd":
            (node.dockerd_stop if given.action == "stop" else node.dockerd_start)()
        case "fill":
            node.free_disk() if given.undo else node.fill_disk(int(given.leave * 1e6))
        case "rotate-key":
            node.rotate_host_key()
            print(f"{node.name} now has {node.host_key_fingerprint}; {node.rack_folder}/known_hosts has the old one")


def nas(rack: Rack, given: argparse.Namespace) -> None:
    if given.action == "mount":
        stale = dict.fromkeys(("attr_s", "entry_s", "negative_s"), given.stale)
        made = rack.nas(given.source, latency_ms=given.latency, mb_per_s=given.rate, **stale)
        made.mount(None if given.node == "host" else rack.node(given.node), given.path)
    elif given.action == "unmount":
        node = None if given.node == "host" else rack.node(given.node)
        for one in rack.all_nas():
            if one.is_mounted(node, given.path):
                one.unmount(node, given.path)
                return
        raise RackError(f"no NAS is mounted at {given.path} of {given.node}")
    elif given.action == "fail":
        for one in rack.all_nas():
            one.fail(given.path, given.kind, given.at, given.times)
    else:
        for one in rack.all_nas():
            totals: dict[tuple[str, str], int] = {}
            for read in one.reads():
                totals[read.node, read.path] = totals.get((read.node, read.path), 0) + read.size
            for (name, path), count in sorted(totals.items()):
                print(f"{name:8} {count:14,} bytes  {path}")


def chosen(number: str | None) -> Rack:
    """The rack that is meant; RackError unless that is clear."""
    racks = running()
    if number:
        racks = [rack for rack in racks if rack.folder.name == number]
    if len(racks) == 1:
        return racks[0]
    if racks:
        raise RackError(f"racks {', '.join(rack.folder.name for rack in racks)} are up: say which with --rack N")
    raise RackError(f"rack {number} is not up" if number else "no rack is up: python -m tests.rack up 2")


def show(rack: Rack) -> None:
    print(f"rack {rack.folder.name}: {rack.switch.network}, link {rack.switch.link}, {rack.folder}")
    for node in rack.nodes:
        state = "off"
        if node.is_on():
            engine = ("docker" if node.docker.ready() else "dockerd is down") if node.has_docker else "no docker"
            state = f"on, {engine}, {pss_mb(node.pid):.0f} MB"
        disk = f"{node.disk_mb} MB disk" if node.disk_mb else "shared disk"
        print(f"  {node.name:6} {node.address:15} {state}; {disk}; {node.host_key_fingerprint}")


if __name__ == "__main__":
    sys.exit(main())
