"""`doit trust NODE`: record a node's ssh host key, after its fingerprint was compared."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from doit.exceptions import InvalidCommand

from sparkbuild.app.spoken import spoken
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.nodes.ssh import hostkeys
from sparkbuild.plugin.commands.base import FactCommand

if TYPE_CHECKING:
    from sparkbuild.nodes.ssh.config import Target
    from sparkbuild.nodes.ssh.hostkeys import HostKey, Opinion

_YES = {"name": "yes", "long": "yes", "short": "y", "type": bool, "default": False, "help": "record it unasked"}
_FINGERPRINT = {
    "name": "fingerprint",
    "long": "fingerprint",
    "type": str,
    "default": "",
    "help": "record it when this is its fingerprint: SHA256:...",
}
_STATES = {
    "known": "known",
    "unknown": "not known",
    "changed": "CHANGED",
    "revoked": "REVOKED",
    "uncertified": "not by its certificate",
}


class Trust(FactCommand):
    """The command `trust`."""

    name = "trust"
    needs_tasks = False
    doc_purpose = "show a node's ssh host key, and record it in known_hosts"
    doc_usage = "[NODE]"
    doc_description = "Without a node: which nodes have a key that is known. A jump host may stand for a node."
    cmd_options = (_YES, _FINGERPRINT)

    def _execute(self, yes: bool, fingerprint: str, pos_args: Any = None) -> int:  # noqa: FBT001
        if not pos_args:
            return self._list()
        if len(pos_args) > 1:
            raise InvalidCommand("one node at a time: each has a fingerprint of its own to compare")
        node = pos_args[0]
        nodes = self.opened.nodes
        hops = {} if node in nodes.names else nodes.hops()
        if node not in nodes.names and node not in hops:
            raise InvalidCommand(f"there is no node {node!r}\n  wanted: {', '.join([*nodes.names, *hops])}")
        if node not in hops and nodes.place(node).connection == "local":
            raise InvalidCommand(f"{node} is this machine: it is not reached over ssh, and has no host key to trust")
        link = nodes.link_to(hops[node] if node in hops else nodes.target(node))
        shown, found = link.host_key(), link.known()
        opinion = link.opinion(shown, found)
        self._show(node, link.target, shown, opinion)
        return self._decide(node, link.target, shown, opinion, fingerprint=fingerprint, yes=yes)

    def _list(self) -> int:
        nodes = self.opened.nodes
        rows: dict[str, str] = {}
        for name in nodes.names:
            if nodes.place(name).connection == "local":
                rows[name] = "this machine, no ssh"
                continue
            try:
                target = nodes.target(name)
                rows[name] = f"{target.where}: {self._standing(target)}"
            except SparkbuildError as error:
                rows[name] = str(error)
        with contextlib.suppress(SparkbuildError):  # it is told above
            rows |= {name: f"{hop.where}: {self._standing(hop)}; jump host" for name, hop in nodes.hops().items()}
        width = max(len(name) for name in rows)
        for name, text in rows.items():
            self.outstream.write(spoken(f"{name:<{width + 2}}{text}\n"))
        return 0

    def _standing(self, target: Target) -> str:
        if target.pin:
            return f"pinned in config.toml, {hostkeys.pinned(target.pin)}"
        found = hostkeys.known(target.known_as, str(self.opened.nodes.known_hosts), target.files)
        good = [entry for entry in found if not entry.marker]
        if not good and hostkeys.certified(found):
            return (
                f"by a certificate of {found[0].key.type} {found[0].key.fingerprint}, {self._relative(found[0].where)}"
            )
        if not good:
            return spoken(f"not known; next: doit trust {target.name}")
        return f"{good[0].key.type} {good[0].key.fingerprint}, from {self._relative(good[0].where)}"

    def _show(self, node: str, target: Target, shown: HostKey, opinion: Opinion) -> None:
        rows = {
            "node": f"{node}, {target.where}",
            "shows": f"{shown.type} {shown.fingerprint}",
            "known": _STATES[opinion.state] + (f", {self._relative(opinion.where)}" if opinion.where else ""),
        }
        if opinion.state == "changed":
            rows["was"] = ", ".join(opinion.wanted)
        for label, text in rows.items():
            self.outstream.write(f"{label + ':':<9}{text}\n")

    def _decide(
        self, node: str, target: Target, shown: HostKey, opinion: Opinion, *, fingerprint: str, yes: bool
    ) -> int:
        own = str(self.opened.nodes.known_hosts)
        if opinion.state == "revoked":
            raise NodeError(f"the key of {node} was revoked", where=opinion.where, next="give the node a new key")
        if fingerprint and fingerprint.rstrip("=") != shown.fingerprint:
            raise NodeError(
                f"{node} shows another key than the given one",
                where=target.where,
                found=shown.fingerprint,
                wanted=fingerprint,
                next="nothing was recorded: find out which one is right",
            )
        if opinion.pinned and opinion.state == "changed":
            raise NodeError(
                f"{node} shows another key than the pinned one, and the pin wins",
                where=f"host_key of node {node} in config.toml",
                found=shown.fingerprint,
                wanted=opinion.wanted[0],
                next="if the node was installed anew, correct the pin; nothing was recorded",
            )
        if opinion.pinned:
            self.outstream.write("nothing to record: the pin in config.toml is what counts\n")
            return 0
        if opinion.state == "known" and opinion.where.startswith(f"{own}:"):
            self.outstream.write("nothing to record: it is known\n")
            return 0
        if opinion.state != "known" and not fingerprint and not yes and not self._asked(node, shown):
            self.outstream.write("nothing was recorded\n")
            return 1
        hostkeys.record(own, target.known_as, shown)
        self.outstream.write(f"recorded in {self._relative(own)}, for {target.known_as}\n")
        return 0

    def _asked(self, node: str, shown: HostKey) -> bool:
        """Whether the operator says that it is the right one."""
        name = shown.type.removeprefix("ssh-").partition("-")[0]
        self.outstream.write(
            f"Compare it with what the console of {node} says to\n    ssh-keygen -lf /etc/ssh/ssh_host_{name}_key.pub\n"
        )
        if not sys.stdin.isatty():
            raise NodeError(
                f"nobody is here to say whether {node} is the right one",
                next=f"doit trust {node} --fingerprint {shown.fingerprint}\nif that is what its console says",
            )
        self.outstream.write("Is it the same? Type yes to trust it: ")
        self.outstream.flush()
        return sys.stdin.readline().strip().lower() == "yes"

    def _relative(self, where: str) -> str:
        return where.removeprefix(f"{self.opened.root}/")
