"""What people and their editors leave in a workspace, and what other programs wrote for it: TOML, locks, included
files, docker's logins, the state of earlier runs, results of harnesses, what a model answers for a tool.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from sparkbuild.bench import benchy, manifest, tooleval
from sparkbuild.core import locks
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.key import Key
from sparkbuild.core.state import StateStore
from sparkbuild.gates import tools
from sparkbuild.gates.chat import Reply, ToolCall
from sparkbuild.images import content
from sparkbuild.nodes import cluster
from sparkbuild.plugin.adapters.backend import WalBackend
from sparkbuild.upstream import challenge, logins
from sparkbuild.workspace.load import load
from sparkbuild.workspace.locks import baseimage, include, reference, sourcelock
from sparkbuild.workspace.shapes.schema import ToolGate
from tests.bench import test_benchy as speed, test_tooleval as scores
from tests.bench.examples import manifest as made_manifest
from tests.parsers.near import bounded, damaged, json_like
from tests.workspace.helpers import IMAGE, RECIPE, healthy, lock_text

CONFIG = '[nodes.dgx1]\nconnection = "ssh"\naddress = "10.0.0.11"\n\n[clusters.pair]\nnodes = ["dgx1"]\n'
WORDS = st.sampled_from([
    "[", "]", "[[staging]]", "=", '"', "'", '"""', "\n", "\r", "\t", "\0", "{", "}", "{{", "a.b.c = 1\n",
    "x = " + "[" * 3000,
    "x = " + "9" * 5000, "x = 1979-99-99\n", "x = 1e999\n", "x = nan\n", "\\u0000", "\\uD800", "\u2028", "#",
    "port = -1\n",
    "[serve]\n", "A" * 70_000, "x = " + "{a=" * 2000, "." * 5000, "\ufeff", '"\\', "inf", "include.x.sha256=",
    "input.=",
])  # fmt: skip


@st.composite
def texts(draw: st.DrawFn, like: str) -> bytes:
    """A text of that kind with damage, and words of the kind somewhere in it."""
    data, at = draw(damaged(like.encode())), draw(st.integers(0, len(like)))
    return data[:at] + "".join(draw(st.lists(WORDS, max_size=4))).encode() + data[at:]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy(tmp_path_factory.mktemp("space"))


FILES = {
    "config.toml": CONFIG, "recipes/demo/recipe.toml": RECIPE, "images/eng/image.toml": IMAGE,
    "locks/eng.source.lock": lock_text(),
}  # fmt: skip


@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_a_workspace_with_an_odd_file(root: Path, name: str, data: st.DataObject) -> None:
    text = data.draw(texts(FILES[name]))
    before = (root / name).read_bytes() if (root / name).exists() else None
    (root / name).write_bytes(text)
    try:
        with bounded(SparkbuildError):
            space = load(root)
            assert all(isinstance(error, SparkbuildError) for error in space.problems.values())
            json.dumps([str(error) for error in space.problems.values()])
    finally:
        if before is None:
            (root / name).unlink()
        else:
            (root / name).write_bytes(before)


@given(data=texts(lock_text()))
def test_a_lock(data: bytes) -> None:
    with bounded(SparkbuildError):
        sourcelock.parse(data.decode(errors="replace"), "eng", "locks/eng.source.lock")


@given(
    data=texts(
        "# rows\nvllm " + "a" * 40 + " " + "b" * 64 + " https://x.example/vllm.git\nlocal x.patch " + "c" * 64 + " -\n"
    )
)
def test_a_manifest_that_a_lock_includes(data: bytes) -> None:
    with bounded(SparkbuildError):
        include.pairs(data.decode(errors="replace"), "sources.manifest")


@given(data=texts("export A=b\nVLLM_REF='v1.0'\n"))
def test_a_file_of_assignments_that_a_lock_includes(data: bytes) -> None:
    with bounded(SparkbuildError):
        include.pairs(data.decode(errors="replace"), "versions.env")


@given(data=texts("ghcr.io/team/engine:v1@sha256:" + "a" * 64))
def test_a_reference_of_an_image(data: bytes) -> None:
    text = data.decode(errors="replace")
    with bounded(SparkbuildError, ValueError):
        reference.parse(text)
    with bounded(SparkbuildError):
        baseimage.parse("base.image", text)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("docker")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(folder))
        patch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        yield folder


LOGINS = {"auths": {"x.example": {"auth": "YTpi"}, "https://index.docker.io/v1/": {"identitytoken": "t"}}}


@given(data=json_like(LOGINS))
def test_the_logins_of_docker(home: Path, data: bytes) -> None:
    (home / "config.json").write_bytes(data)
    with bounded(SparkbuildError):
        for host in ("x.example", ""):
            found = logins.login_of(host)
            if found is not None:
                found.for_docker()


@pytest.mark.parametrize("said", [b"[" * 100_000, b"{}", b'{"Username": 1, "Secret": null}', b"\xff", b'"x"', b"\0"])
def test_what_a_credential_helper_says(home: Path, said: bytes) -> None:
    helper = home / "docker-credential-odd"
    (home / "said").write_bytes(said)
    helper.write_text(f"#!/bin/sh\nexec /bin/cat {home}/said\n")
    helper.chmod(0o755)
    (home / "config.json").write_text('{"credsStore": "odd"}')
    with bounded(SparkbuildError):
        logins.login_of("x.example")


@given(
    header=damaged(b'Bearer realm="https://x/token",service="s", Basic realm="a\\"b"'),
    after=damaged(b"Tue, 01 Dec 2026 00:00:00 GMT"),
)
def test_what_a_registry_asks_for(header: bytes, after: bytes) -> None:
    with bounded():
        challenge.challenges([header.decode("latin-1")])
        challenge.seconds(after.decode("latin-1"))


@pytest.mark.parametrize("header", ['"' * 5000, "a=\\" * 2000])
def test_a_registry_that_asks_without_end(header: str) -> None:
    with bounded():
        challenge.challenges([header])


EVENTS: list[dict[str, Any]] = [
    {
        "type": "request_start",
        "request_id": 1,
        "prompt_size": 5,
        "response_size": 5,
        "context_size": 0,
        "concurrency": 1,
    },
    {"type": "request_end", "request_id": 1, "error": "x"},
    {"event": "scenario_result", "index": 1, "total": 5, "scenario_id": "TC-01"},
    {"event": "error", "message": "no route"},
]


@given(lines=st.lists(st.sampled_from(EVENTS).flatmap(json_like), max_size=4))
def test_the_events_of_a_harness(lines: list[bytes]) -> None:
    followed = (benchy.Events(speed.SETTINGS), tooleval.Events())
    with bounded():
        for line in lines:
            for events in followed:
                progress = events.take(line.decode(errors="replace"))
                assert progress is None or msgspec.json.encode(str(progress))


@given(data=json_like(json.loads(speed.result())), other=json_like(scores.result()))
def test_the_result_of_a_harness(data: bytes, other: bytes) -> None:
    with bounded(ValueError):
        benchy.read(data)
    with bounded(ValueError):
        tooleval.read(other)


@given(data=json_like(msgspec.to_builtins(made_manifest())))
def test_the_manifest_of_a_bench(data: bytes) -> None:
    with bounded(ValueError):
        manifest.decode(data)


GATE = ToolGate("a", "p", "f", "d", {"type": "object"}, {"city": "Rome", "days": [1, 2.0]})


@given(arguments=json_like({"city": "Rome", "days": [1, 2.0]}))
def test_the_arguments_that_a_model_gives(arguments: bytes) -> None:
    call = ToolCall("f", arguments.decode(errors="replace"))
    with bounded():
        tools.grade(GATE, Reply(content="", reasoning="", finish_reason="stop", tool_calls=(call,)))


@given(data=json_like({"pid": 5, "since": 1.7e9}))
def test_the_holder_of_a_lock(root: Path, data: bytes) -> None:
    (root / "lock").write_bytes(data[:4096])
    fd = os.open(root / "lock", os.O_RDONLY)
    try:
        with bounded():
            locks._holder(fd)
    finally:
        os.close(fd)


@given(record=json_like({"stopped_at": None}), receipt=json_like({"key": Key({}).digest, "layers": []}))
def test_records_in_the_store_of_this_machine(root: Path, record: bytes, receipt: bytes) -> None:
    (root / "lane.json").write_bytes(record)
    place = root / content.archive_in_store("x", Key({})) / "receipt.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(receipt)
    with bounded():
        cluster._is_open(str(root / "lane.json"))
        content.receipt_here(str(root), "x", Key({}))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "state.db"
    store = StateStore(path)
    store.save_row("task", "{}")
    store.close()
    return path


COLUMN = st.one_of(
    st.none(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5)
)


@given(
    row=json_like({"deps:": ["x"], "x": [[1, 2, 3], "a"]}),
    parts=json_like({"kind": "files"}),
    rest=st.tuples(*[COLUMN] * 4),
)
def test_the_state_of_earlier_runs(state: Path, row: bytes, parts: bytes, rest: tuple[Any, ...]) -> None:
    connection = sqlite3.connect(state)
    with connection:
        text, other = (data.decode(errors="replace") for data in (row, parts))
        connection.execute("insert or replace into doit values (?, ?)", ("task", text))
        values = ("image://dgx1/x", "k", other, *(b"" if value is None else value for value in rest))
        connection.execute("insert or replace into made values (?, ?, ?, ?, ?, ?, ?)", values)
    connection.close()
    backend = WalBackend(str(state))
    with bounded(SparkbuildError):
        backend.get("task", "x")
        backend.reload("task")
        found = backend.store.all_made()
        assert all(isinstance(one.at, float) and isinstance(one.parts, dict) for one in found.values())
    backend.store.close()
