"""The index of what is staged on this node: a small file per folder, so that what no recipe wants any more is known.

`<store>/staged-index/<sha256 of dst>.json`: {"format", "dst", "recipe", "block", "workspace", "key", "before": the key
that it is being replaced by, "bytes", "staged_at", "served_at", "adopted": files were there before, "mount",
"file_system": the mount point that it lay on when it was staged, and what was mounted there, see ground}, times in unix
seconds, 0 for never. It is written
before the first byte is staged, since an interrupted staging takes room too, and again when all is whole. An entry is
what allows a folder to be evicted; it is no proof that anything is in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sparkbuild.agent.disk.files import keep_owner, write_json
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger import folder
from sparkbuild.agent.ledger.ledger import LedgerError, small_file

FORMAT = "sparkbuild-staged/v1"
FOLDER = "staged-index"
EVICTED = ".evicted"  # how the name of the record of an eviction ends, see evicted
_LONGEST = 64 << 10  # bytes of an entry that anyone would read


class Entry(NamedTuple):
    """One folder: for which recipe and block it was staged from which workspace ("host:folder"), and when."""

    dst: str
    recipe: str = ""
    block: str = ""
    workspace: str = ""
    key: str = ""
    before: str = ""
    bytes: int = 0
    staged_at: float = 0.0
    served_at: float = 0.0
    adopted: bool = False
    mount: str = ""
    file_system: str = ""


def path_of(store: str, dst: str, end: str = ".json") -> str:
    """Where the entry of a folder is, or another record of it."""
    import hashlib  # noqa: PLC0415 - 3 ms, and most calls of the agent know nothing of the index

    return os.path.join(store, FOLDER, f"{hashlib.sha256(os.fsencode(dst)).hexdigest()}{end}")


def entries(store: str) -> list[Entry]:
    """All folders of the index, by their paths; what is no entry, or has the name of another one, is left out."""
    try:
        names = sorted(name for name in os.listdir(os.path.join(store, FOLDER)) if name.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    read = (_read(os.path.join(store, FOLDER, name)) for name in names)
    found = [one for one, name in zip(read, names, strict=True) if one and path_of(store, one.dst).endswith(name)]
    return sorted(found, key=lambda one: one.dst)


def entry(store: str, dst: str) -> Entry | None:
    """The entry of one folder, None when sparkbuild staged nothing there from this store."""
    found = _read(path_of(store, dst))
    return found if found is not None and found.dst == dst else None


def before(query: dict[str, Any], dst: str) -> dict[str, Any]:
    """{"before": the folder that the query's "of", a recipe and its block, was last staged or exported into, "here": it
    was this one}; {} when that is not known. A folder that was evicted is none.
    """
    recipe, _, block = str(query.get("of") or "").partition("/")
    same = [one for one in entries(query.get("store", "")) if (one.recipe, one.block) == (recipe, block)]
    found = [one for one in same if one.staged_at]
    if not found:
        return {}
    last = max(found, key=lambda one: (one.dst == dst, one.staged_at)).dst
    return {"before": last, "here": last == dst}


def noted(request: dict[str, Any], dst: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do a staging or an export, and have it in the index from its beginning on. To be called under the lock of the
    folder; `work` returns its result. Without {"owner": {"recipe", "block", "workspace"}} in the request, nothing is
    noted. One that failed before anything was written leaves the index as it was.
    """
    owner, store = request.get("owner"), str(request.get("store") or "")
    if not isinstance(owner, dict) or not store:
        return work()
    from sparkbuild.agent.ledger import (  # noqa: PLC0415 - which know the index
        blocked as ground,
        owner as owned,
    )

    before, owned_before = entry(store, dst), owned.read(dst)
    old = before or Entry(dst)
    mount, file_system = ground.mount(dst)
    old = old._replace(adopted=old.adopted and folder.begun(dst), mount=mount, file_system=file_system)
    recipe, block, workspace = (str(owner.get(field) or "") for field in ("recipe", "block", "workspace"))
    key = str(request["key"])
    named = old._replace(recipe=recipe, block=block, workspace=workspace, key=key)
    _write(store, named._replace(before=old.key if old.key != key else old.before))
    mine = owned.Owner(dst, recipe, block, workspace, key, owned_before.staged_at if owned_before else 0.0)
    try:
        owned.write(dst, mine)
        result = work()
    except BaseException:
        if not folder.begun(dst):
            _write(store, before) if before else forget(store, dst)
            owned.write(dst, owned_before)
        raise
    since = entry(store, dst) or old  # a lane may have been served from it meanwhile
    named = named._replace(
        before="", bytes=int(result.get("total", 0)), staged_at=time.time(), served_at=since.served_at
    )
    named = named._replace(adopted=since.adopted)
    _write(store, named)
    owned.write(dst, mine._replace(staged_at=named.staged_at))
    _remove(path_of(store, dst, EVICTED))
    return result


def adopt(request: dict[str, Any], dst: str) -> None:
    """Note of a folder in the index that files of others were found in it and are kept: it is never evicted."""
    found = entry(str(request.get("store") or ""), dst)
    if found is not None and isinstance(request.get("owner"), dict):
        _write(str(request["store"]), found._replace(adopted=True))


def served(request: dict[str, Any]) -> None:
    """Note which folders the running lane of the request's recipe uses. That is known of a lane while it runs: so when
    it was launched, when it is ready, and before it is stopped.
    """
    found = entries(request["store"])
    if not found:
        return
    from sparkbuild.agent.lane import (  # noqa: PLC0415 - the index itself knows no lanes
        record as lanes,
        uses,
    )

    shelf = lanes.shelf_of(request)
    used = [one for one in found if request["recipe"] in uses.users(request["store"], one.dst, shelf)]
    with contextlib.suppress(OSError):  # only a hint for what to remove first: no lane fails of it
        for one in used:
            _write(request["store"], one._replace(served_at=time.time()))


def forget(store: str, dst: str) -> None:
    """Take a folder out of the index."""
    _remove(path_of(store, dst))


def _remove(path: str) -> None:
    above, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError), Held(above) as held:
        held.unlink(name)


def _write(store: str, found: Entry) -> None:
    above = os.path.join(store, FOLDER)
    if not os.path.isdir(above):
        os.makedirs(above, exist_ok=True)
        keep_owner(above)
    write_json(path_of(store, found.dst), {"format": FORMAT, **found._asdict()})


def _read(path: str) -> Entry | None:
    """An entry, each field of it as it should be; None for anything else that may lie there."""
    try:
        if os.lstat(path).st_size > _LONGEST:
            return None
        value = json.loads(small_file(path) or b"")
        if value["format"] != FORMAT:
            return None
        fields = [{"adopted": False, "mount": "", "file_system": "", **value}[name] for name in Entry._fields]
    except (OSError, ValueError, KeyError, TypeError, LedgerError, RecursionError):
        return None
    return Entry(*fields) if _are_right(*fields) else None


def _are_right(dst: object, *more: object) -> bool:
    texts, size, times, adopted = (*more[:5], *more[9:]), more[5], more[6:8], more[8]
    return (
        isinstance(dst, str)
        and all(isinstance(text, str) and text.isprintable() for text in (dst, *texts))
        and os.path.isabs(dst)
        and os.path.normpath(dst) == dst
        and os.path.dirname(dst) != dst
        and type(size) is int
        and type(adopted) is bool
        and all(type(at) in (int, float) for at in times)
    )
