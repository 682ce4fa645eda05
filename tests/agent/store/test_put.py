"""A file that is sent to a node, by an agent whose caller goes away."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from tests.agent.driver import start


def test_what_has_arrived_is_kept_when_the_caller_no_longer_listens(tmp_path: Path) -> None:
    """A connection that ends closes both ways at once: bytes are in the pipe when a line can no longer be said."""
    content = os.urandom(9_000_000)
    request = {"store": str(tmp_path), "path": "a/w.bin", "sha256": hashlib.sha256(content).hexdigest()}
    with start("put", {**request, "size": len(content)}) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        assert json.loads(agent.stdout.readline()) == {"event": "ready", "offset": 0}
        agent.stdout.close()
        agent.stdin.write(content[:3_000_000])
        agent.stdin.close()
        assert agent.wait(timeout=30) == 143
    assert (tmp_path / "a/w.bin.part").read_bytes() == content[:3_000_000]
