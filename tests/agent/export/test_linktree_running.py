"""Links of what a running lane uses are neither made nor removed: engines watch ctime and link count of their files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.uses import users
from sparkbuild.agent.wire.protocol import AgentError
from tests.agent.driver import entry
from tests.agent.exports import Site, running, stopped


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.mirrored("page15/*")
    yield made
    for recipe in records.names(str(made.store)):
        stopped(made.store, recipe)


def test_a_lane_that_uses_the_mirror(site: Site) -> None:
    running(site.store, "demo-2x", [str(site.mirror.parent)])
    before = os.lstat(site.blob("config.json"))
    error = site.refused(site.tree())
    assert error["kind"] == "config"
    assert error["where"] == str(site.mirror)
    assert error["found"].startswith("lane demo-2x runs and uses it")
    assert error["next"] == "doit stop:demo-2x"
    assert os.lstat(site.blob("config.json")) == before
    stopped(site.store, "demo-2x")
    assert site.made(site.tree())["made"] > 0


def test_nothing_to_do_is_not_refused(site: Site) -> None:
    site.made(site.tree("page15/*"))
    running(site.store, "demo-2x", [str(site.mirror.parent), str(site.dst)])
    before = {path: os.lstat(path).st_ctime_ns for path in site.mirror.rglob("*") if path.parent.name == "blobs"}
    assert site.made(site.tree("page15/*"))["made"] == 0
    assert {path: os.lstat(path).st_ctime_ns for path in before} == before
    assert "is refused" in site.refused(site.tree(subtree="draft"))["what"], "links would go"
    assert site.texts() == []


def test_a_lane_of_something_else_does_not_matter(site: Site) -> None:
    running(site.store, "demo-2x", [f"{site.mirror.parent}-other"])
    site.made(site.tree())


def test_pointers_touch_no_mirror_but_the_export_itself(site: Site, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    over = site.over("rows", [entry("engram-local.json", tmp_path / "x")])
    running(site.store, "demo-2x", [str(site.mirror)])
    assert site.made(site.composed(over))["pointers"] == 6
    stopped(site.store, "demo-2x")
    running(site.store, "demo-2x", [str(site.dst)])
    (site.dst / "config.json").unlink()
    assert site.refused(site.composed(over))["where"] == str(site.dst)


def test_staging_is_refused_while_a_lane_uses_the_mirror(site: Site) -> None:
    site.made(site.tree())
    blob = site.blob("config.json")
    with blob.open("r+b") as file:
        file.write(b"evil")
    running(site.store, "demo-2x", [str(site.mirror.parent), str(site.dst)])
    with pytest.raises(AgentError) as refused:
        site.mirrored("page15/*")
    assert refused.value.fields["what"].startswith(
        f"replacing config.json (blob {blob.name[:12]}...), a file of exports, is refused"
    )
    assert refused.value.fields["next"] == "doit stop:demo-2x"
    assert (site.mirror / ".sparkbuild/ledger.json").exists(), "nothing was begun"
    stopped(site.store, "demo-2x")
    assert site.mirrored("page15/*")["repaired_chunks"] == 1


@pytest.mark.parametrize(
    ("uses", "argv", "path", "found"),
    [
        (["/srv/models"], [], "/srv/models/hub/models--a--b", ["demo"]),
        (["/srv/models/hub/models--a--b/blobs/x"], [], "/srv/models/hub/models--a--b", ["demo"]),
        (["/srv/models/"], [], "/srv/models", ["demo"]),
        (["/srv/models"], [], "/srv/models2", []),
        (["/srv/models2"], [], "/srv/models", []),
        ([], ["/srv/models/x.gguf"], "/srv/models", ["demo"]),
        ([], ["--model=/srv/models/x.gguf"], "/srv/models/", ["demo"]),
        ([], ["/srv/models/../other"], "/srv/models", []),
        ([], ["--root=/", "/"], "/srv/models", []),
    ],
)
def test_users(tmp_path: Path, uses: list[str], argv: list[str], path: str, found: list[str]) -> None:
    running(tmp_path, "demo", uses, ["/bin/sh", "-c", "sleep 60", *argv])
    try:
        assert users(str(tmp_path), path) == found
    finally:
        stopped(tmp_path, "demo")
    assert users(str(tmp_path), path) == []


def test_a_record_of_before_has_no_uses(tmp_path: Path) -> None:
    running(tmp_path, "demo", ["/srv/models"])
    record = records.record(str(tmp_path), "demo")
    assert record is not None
    assert record["uses"] == ["/srv/models"]
    del record["uses"]
    records.write(str(tmp_path), record)
    assert users(str(tmp_path), "/srv/models") == []
    stopped(tmp_path, "demo")


def test_a_container_counts_while_docker_does_not_say_otherwise(tmp_path: Path) -> None:
    running(tmp_path, "demo", ["/srv/models"])
    record = records.record(str(tmp_path), "demo")
    assert record is not None
    stopped(tmp_path, "demo")
    docker = {**record, "runtime": "docker", "container": "c" * 64, "pid": 0}
    silent = records.shelf_of({"docker": str(tmp_path / "no.sock")})
    (tmp_path / "no.sock").write_text("")
    records.write(str(tmp_path), docker)  # type: ignore[arg-type]
    assert silent.problem
    assert users(str(tmp_path), "/srv/models", silent) == ["demo"]
    records.write(str(tmp_path), {**docker, "stopped_at": 1.0})  # type: ignore[arg-type,typeddict-item]
    assert users(str(tmp_path), "/srv/models", silent) == []
    records.write(str(tmp_path), {**docker, "boot_id": "another"})  # type: ignore[arg-type,typeddict-item]
    assert users(str(tmp_path), "/srv/models", silent) == []
