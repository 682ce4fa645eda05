"""Room on a node for an image that is brought there: on docker's own disk, and in the node's store."""

from __future__ import annotations

from sparkbuild.agent.wire.dockerimages import EngineRoom
from sparkbuild.core.errors import SpaceError

# What docker's disk needs for each byte of layers that it lacks, measured: overlay2 keeps a layer and a part of its
# tar for a while, containerd's store keeps both for good; a load writes a copy of all before it unpacks that.
PULL = {"overlay2": 1.2}
LOAD = ELSEWHERE = 2.0


def check_room(node: str, engine: EngineRoom | None, size: int, arrived: int = 0) -> bool:
    """Raise SpaceError when docker's disk has no room for layers of `size` bytes, as far as that is known. False when
    only the node's store has none, where they arrive; of them, `arrived` bytes are there.
    """
    if engine is None:
        return True
    factor = PULL.get(engine["store"], ELSEWHERE)
    check_disk(node, engine, size, factor)
    here, left = engine["store_free"], size - arrived
    return here is None or here >= left + (size * factor if engine["shared"] else 0)


def check_disk(node: str, engine: EngineRoom | None, size: int, factor: float) -> None:
    """Raise SpaceError when docker's disk has not `factor` times so many bytes free."""
    free = engine["free"] if engine is not None else None
    needed = int(size * factor)
    if engine is not None and free is not None and free < needed:
        raise SpaceError(
            f"docker's disk on {node} has no room for the image",
            where=engine["root"],
            found=f"{free / 1e6:.0f} MB free",
            wanted=f"{needed / 1e6:.0f} MB: {factor:g} times what is missing, since docker unpacks a copy",
            next=f"`docker system df` on {node} says what takes the room; doit prune removes old images of ours",
        )
