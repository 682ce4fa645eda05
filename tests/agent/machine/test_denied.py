"""What may not be touched: whose it is, who we are, and what mends it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import call

_USED = (
    "facts", "stage.verify", "stage.stage", "source.plan", "source.opened", "source.plainfolder", "rows.packed",
    "hub.plan", "machine.oserrors", "lane.records", "lane.uses",
)  # fmt: skip
# what is imported later may lie where only root may read
NOBODY = (
    "import os, pwd, sparkbuild.agent.main, sparkbuild.agent.machine.denied, "
    "sparkbuild.agent.machine.mounts, sparkbuild.agent.store.fetch; "
    "os.seteuid(65534)"
)
STAGING = "import sparkbuild.agent." + ", sparkbuild.agent.".join(_USED) + "; " + NOBODY
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may enter: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def denied(store: Path) -> dict[str, Any]:
    request = {"store": str(store), "sha256": "a" * 64, "filename": "x", "wheel": "", "url": "file:x", "root": "/"}
    answer = call("fetch", request, shim=NOBODY)
    assert (answer.code, answer.last["event"], answer.last["what"]) == (1, "error", "Permission denied")
    return answer.last


def test_a_store_of_somebody_else(place: Path) -> None:
    store = place / "store"
    store.mkdir()
    error = denied(store)
    assert error["found"] == f"{store} belongs to root, drwxr-xr-x; we are nobody"
    assert error["wanted"] == "a store that nobody may write to"
    assert error["next"] == f"on that node: sudo chown -R nobody: {store}"


def test_a_folder_in_it_of_somebody_else(place: Path) -> None:
    store = place / "store"
    (store / "artifacts").mkdir(parents=True)
    os.chown(store, 65534, 0)
    error = denied(store)
    assert error["found"] == f"{store}/artifacts belongs to root, drwxr-xr-x; we are nobody"
    assert error["next"] == f"on that node: sudo chown -R nobody: {store}"


def test_a_store_that_cannot_be_made(place: Path) -> None:
    store = place / "store"
    error = denied(store)
    assert error["found"] == f"{place} belongs to root, drwxr-xr-x; we are nobody"
    assert error["next"] == f"on that node: sudo install -d -o nobody {store}, or another `store` in config.toml"


@pytest.mark.parametrize("kind", ["folder", "packed", "hub-mirror"])
def test_a_source_of_somebody_else_is_told_by_a_look_as_by_staging(place: Path, kind: str) -> None:
    source, dst = place / "model", place / "open"
    source.mkdir(mode=0o700)
    dst.mkdir(mode=0o777)
    dst.chmod(0o777)
    what = {
        "folder": {"kind": "folder", "path": str(source), "members": [], "skip": []},
        "packed": {"kind": "packed", "model": str(source), "layers": [], "split": "even", "tp": 1, "rank": 0},
        "hub-mirror": {"kind": "hub-mirror", "cache": str(source), "repo": "org/model", "revision": "main"},
    }[kind]
    query = {"scheme": "staged", "store": str(dst), "dst": str(dst / "x"), "key": "a" * 64, "what": what}
    refused = call("facts", {"store": str(dst), "queries": [query]}, shim=STAGING).last["facts"][0]["refused"]
    assert refused["what"] == "Permission denied"
    assert refused["found"] == f"{source} belongs to root, drwx------; we are nobody"
    assert refused["wanted"] == "a path that nobody may use"
    assert refused["next"] == f"on that node: let nobody use {source}"
    answer = call("stage", {**query, "parts": {}, "min_free": 0, "verify": "quick"}, shim=STAGING)
    assert {**answer.last, "part": "source"} == {"event": "error", **refused}
