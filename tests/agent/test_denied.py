"""What may not be touched: whose it is, who we are, and what mends it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import call

# what is imported later may lie where only root may read
NOBODY = "import os, pwd, sparkbuild.agent.main, sparkbuild.agent.denied, sparkbuild.agent.fetch; os.seteuid(65534)"
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
