"""An image of more layers than docker's store takes: told as that, once, and not tried again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.docker import adopt
from sparkbuild.agent.docker.engine import DockerdError
from sparkbuild.agent.docker.pull import _Pull
from sparkbuild.agent.wire.protocol import AgentError, Reporter

# as the engine ends a pull, in a line of its stream
SAID = "failed to register layer: max depth exceeded"


def test_a_pull_ends_at_once_with_what_to_do(tmp_path: Path) -> None:
    request: dict[str, Any] = {
        "store": str(tmp_path), "docker": "", "folder": "images", "reference": "sparkbuild/deep:abc", "arriving": [],
        "sources": [], "architecture": "amd64", "layers": [], "token": "t", "config": "{}", "containerd": False,
        "key": "k",
    }  # fmt: skip
    tries = []

    def refused() -> None:
        tries.append(1)
        raise DockerdError(SAID, status=500)

    began = time.monotonic()
    with pytest.raises(AgentError) as caught:
        _Pull(request, Reporter())._try(refused)
    told = caught.value.fields
    assert (len(tries), time.monotonic() - began < 0.9) == (1, True)
    assert told["what"] == "docker takes no image of so many layers: sparkbuild/deep:abc"
    assert (told["kind"], told["found"]) == ("config", SAID)
    assert "at most 125 layers" in told["wanted"]
    assert "fewer steps in the Dockerfile" in told["next"]
    assert "run again" not in told["next"]


def test_an_image_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def have(*_args: Any, **_more: Any) -> None:
        raise DockerdError(SAID, next="run again")

    monkeypatch.setattr(adopt, "have", have)
    request = {"docker": "", "repository": "org/deep", "digest": "sha256:0", "reference": "r", "pull": True}
    with pytest.raises(AgentError) as caught:
        adopt.run(request, Reporter())
    assert caught.value.fields["found"] == SAID
    assert caught.value.fields["next"] == "an image of at most 125 layers: docker's store takes no more"
