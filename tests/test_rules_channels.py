"""The rule that channels over ssh are opened in one place, which sends nothing after their close."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1] / "sparkbuild"
OPENS = {"open_channel", "open_session", "open_sftp", "open_forwarded_tcpip_channel"}
MAKES = {"paramiko.Transport", "paramiko.SSHClient", "paramiko.Channel"}
OWN = ROOT / "nodes/ssh/channel.py"


def test_channels_and_transports_are_made_in_one_file() -> None:
    found = []
    for path in ROOT.rglob("*.py"):
        if path == OWN:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = ast.unparse(node.func)
                if node.func.attr in OPENS or name in MAKES:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert not found, "sparkbuild.nodes.ssh.channel: Transport.opened, own"
