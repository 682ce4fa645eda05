"""Any wish from any state: staged, it verifies clean, and staging it once more writes nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings, strategies as st

from tests.agent.driver import CHUNK, entry, list_of, look_here, stage_here

NAMES = ["a.bin", "b/a.bin", "b/c/d.bin", "e", "f/g"]
SIZES = [0, 1, 4096, 5000, 300_000, CHUNK, CHUNK + 1, 2 * CHUNK + 4097]


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, Any]:
    files = {}
    for name in draw(st.sets(st.sampled_from(NAMES), max_size=4)):
        size = draw(st.sampled_from(SIZES))
        cuts = sorted(draw(st.sets(st.integers(0, size), max_size=6)))
        cuts = cuts[: len(cuts) // 2 * 2]
        sparse = draw(st.booleans()) and bool(cuts)
        files[name] = (size, [list(pair) for pair in zip(cuts[::2], cuts[1::2], strict=True)] if sparse else [])
    links = {name: draw(st.sampled_from(["a.bin", "b", "nowhere"])) for name in draw(st.sets(st.sampled_from("xyz")))}
    return {"files": files, "links": links, "seed": draw(st.integers(0, 2))}


damages = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "grow", "unlink", "foreign", "inode", "link", "ledger", "stamps"]),
        st.integers(0, 10),
        st.integers(0, 1 << 24),
    ),
    max_size=5,
)


def source_of(folder: Path, size: int, seed: int) -> Path:
    path = folder / f"{size}-{seed}"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        block = bytes((seed + 1 + index) % 251 + 1 for index in range(4099))
        path.write_bytes((block * (size // 4099 + 1))[:size])
    return path


def request_of(work: Path, wish: dict[str, Any], **more: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    files, expected = [], {}
    for name, (size, extents) in wish["files"].items():
        source = source_of(work / "source", size, wish["seed"])
        files.append(entry(name, source, **({"extents": extents} if extents else {})))
        data = source.read_bytes()
        whole = bytearray(size)
        for first, end in extents or [[0, size]]:
            whole[first:end] = data[first:end]
        expected[name] = bytes(whole)
    # With an owner, as every recipe has one: what is there after its ledger was lost is known to have been staged.
    owner = {"recipe": "big", "block": "data", "workspace": f"dgx1:{work}"}
    return list_of(work / "dst", files, wish["links"], store=str(work), owner=owner, **more), expected


def damage(dst: Path, how: str, which: int, where: int) -> None:
    paths = sorted(path for path in dst.rglob("*") if path.is_file() and ".sparkbuild" not in path.parts)
    if how in ("ledger", "stamps"):
        (dst / f".sparkbuild/{how}.json").unlink(missing_ok=True)
        return
    if not paths:
        return
    path = paths[which % len(paths)]
    if how == "unlink":
        path.unlink()
    elif how == "link":
        path.unlink()
        path.symlink_to("elsewhere")
    elif how == "inode":
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    elif how == "foreign":
        path.write_bytes(os.urandom(path.stat().st_size))
    else:
        size = path.stat().st_size
        with path.open("r+b") as file:
            if how == "cut":
                file.truncate(size // 2)
            elif how == "grow":
                file.seek(size)
                file.write(b"more")
            elif size:
                file.seek(where % size)
                byte = file.read(1)
                file.seek(where % size)
                file.write(bytes([byte[0] ^ 1]))


_SPARSE: dict[str, Any] = {"files": {"a.bin": (5000, [[0, 1]])}, "links": {}, "seed": 2}


@example(first=_SPARSE, second=_SPARSE, harm=[("flip", 0, 4096)], streams=1, verify="quick")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    first=wishes(), second=wishes(), harm=damages, streams=st.integers(1, 4), verify=st.sampled_from(["quick", "full"])
)
def test_any_wish_from_any_state(
    first: dict[str, Any], second: dict[str, Any], harm: list[tuple[str, int, int]], streams: int, verify: str
) -> None:
    work = Path(tempfile.mkdtemp())
    try:
        stage_here(request_of(work, first)[0])
        for how, which, where in harm:
            damage(work / "dst", how, which, where)
        request, expected = request_of(work, second, streams=streams, verify=verify)
        stage_here(request)
        for name, data in expected.items():
            assert (work / "dst" / name).read_bytes() == data, name
        for name, text in second["links"].items():
            assert os.readlink(work / "dst" / name) == text
        assert look_here(work / "dst")["problems"] == []
        assert look_here(work / "dst", full=True)["problems"] == []
        again = stage_here(request)
        assert (again["bytes"], again["read"], again["links"], again["removed"]) == (0, 0, 0, 0)
    finally:
        shutil.rmtree(work)
