"""What is said when a download fails: by the words of pip itself, which is run."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.store.unreached import OFFLINE, is_unreached
from tests.agent.driver import call


@pytest.fixture
def closed() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def fetch(store: Path, **more: Any) -> dict[str, Any]:
    fixed = {"store": str(store), "sha256": "a" * 64, "filename": "x-1-py3-none-any.whl", "wheel": "", "root": "/"}
    answer = call("fetch", {**fixed, "url": "", **more}, shim=more.pop("shim", ""))
    assert (answer.code, answer.last["event"], answer.last["kind"]) == (1, "error", "node")
    return answer.last


def index(url: str) -> str:
    return f"import os; os.environ.update(PIP_INDEX_URL={url!r}, PIP_RETRIES='1', PIP_CONFIG_FILE=os.devnull)"


def test_no_internet_on_another_machine(tmp_path: Path, closed: str) -> None:
    error = fetch(tmp_path, wheel="x==1", remote=True, shim=index(closed))
    assert error["what"] == "download x==1 failed"
    assert "No matching distribution found for x==1" in error["found"]
    assert error["next"] == OFFLINE


def test_no_internet_here(tmp_path: Path, closed: str) -> None:
    error = fetch(tmp_path, wheel="x==1", shim=index(closed))
    assert "Connection refused" in error["found"], "the cause, not only that nothing was found"
    assert error["next"].startswith("is a package index reached from here?")
    assert "offline" not in error["next"]


def test_a_version_that_the_index_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "index/x").mkdir(parents=True)
    (tmp_path / "index/x/index.html").write_text("<html></html>")
    error = fetch(tmp_path / "store", wheel="x==1", shim=index((tmp_path / "index").as_uri()))
    assert error["next"].startswith("does the package index have it")


@pytest.mark.parametrize(
    ("remote", "named"), [(True, "`python` of this node in config.toml"), (False, "SPARKBUILD_PYTHON=")]
)
def test_wheels_for_other_machines_alone(tmp_path: Path, remote: bool, named: str) -> None:
    """The index was reached: that the node is offline would be wrong advice."""
    (tmp_path / "index/x").mkdir(parents=True)
    links = [f'<a href="x-1-cp3{version}-cp3{version}-win_arm64.whl">x</a>' for version in (10, 11, 12, 13, 14)]
    (tmp_path / "index/x/index.html").write_text(f"<html>{''.join(links)}</html>")
    error = fetch(tmp_path / "store", wheel="x==1", remote=remote, shim=index((tmp_path / "index").as_uri()))
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {os.uname().machine}"
    assert f"does the package index have it for {here}?" in error["next"]
    assert named in error["next"]
    assert "offline" not in error["next"]


@pytest.mark.parametrize("remote", [True, False])
def test_a_node_with_an_older_python(tmp_path: Path, remote: bool) -> None:
    request = {"store": str(tmp_path), "name": "env", "key": "a" * 64, "python": "3.99", "remote": remote}
    error = call("venv", request).last
    assert error["what"] == "image env needs a newer Python on this node"
    if remote:
        assert (
            error["next"]
            == 'install python3.99 on that node, and set python = "python3.99" in its table of config.toml'
        )
    else:
        assert "SPARKBUILD_PYTHON=python3.99 ./doitw" in error["next"]


def test_a_url_that_is_not_reached(tmp_path: Path, closed: str) -> None:
    assert fetch(tmp_path, url=f"{closed}/x", remote=True)["next"] == OFFLINE
    assert fetch(tmp_path, url=f"{closed}/x")["next"] == "run again: it goes on where it was"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<urlopen error [Errno -3] Temporary failure in name resolution>", True),
        ("[Errno -2] Name or service not known", True),
        ("Failed to establish a new connection: [Errno 101] Network is unreachable", True),
        ("HTTP 404 Not Found", False),
        ("", False),
    ],
)
def test_what_counts_as_unreached(text: str, found: bool) -> None:
    assert is_unreached(text) is found
