"""Is an export as its manifest says? Only looked at: no content is read, and of what is made nothing is asked of the
source.
"""

from __future__ import annotations

import os
from typing import Any

from sparkbuild.agent.disk import questions
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.export import linkwish
from sparkbuild.agent.export.linkwish import EMPTY, HARD, POINTER, Entry
from sparkbuild.agent.export.place import foreseen, names, problem
from sparkbuild.agent.ledger import evicted, folder, index, ledger, mountlist, obstacles, stamps
from sparkbuild.agent.ledger.ledger import LedgerError
from sparkbuild.agent.wire.protocol import AgentError


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "dst", "what"?, "full"?, "of"?, "key"?, "keys"?, "owner"?}; {"present": true, "key", "parts",
    "commit", "files": how many, "mounts": [{"source", "target", "read_only"}], "problems": [{"file", "text"}]}.

    Without a manifest {"present": false, "busy": who works on it, "problem": why it cannot be read, "begun": its making
    did not end, "evicted": see `evicted.told`, "before": see `index.before`}. "refused" are the fields of the error
    that making it would end with: its folder is another's, or, with "keys", those that the staged folders of "what" are
    to have, and "key", its own, see `place.foreseen`.

    With "what" (see linkwish.wish), an export of folders that were staged anew since is held against their ledgers;
    with "full" too, any export is.
    """
    dst = inside(query.get("store", ""), query["dst"])
    try:
        made = mountlist.read(dst)
    except LedgerError as error:
        text = f"the manifest in {dst} is unreadable: {error}"
        return {"present": False, "busy": "", "problem": text, **_refused(query, dst)}
    if made is None:
        gone = {**evicted.told(query.get("store", ""), dst), **index.before(query, dst)}
        begun = bool(mountlist.noted(dst))
        return {"present": False, "busy": folder.busy(dst), "begun": begun, **gone, **_refused(query, dst)}
    entries = _entries(made)
    found = [{"file": name, "text": text} for name, entry in entries.items() if (text := problem(dst, entry))]
    strange = (name for name in names(dst) if name not in entries)
    found += [{"file": name, "text": f"{name} is not of the export"} for name in strange]
    found += [{"file": path, "text": text} for path, text in _sources(made, entries, query, dst)]
    found += [{"file": mountlist.path_of(dst), "text": text} for text in _mounts(made, dst, query)]
    return {
        "present": True,
        "key": made["key"],
        "parts": made["parts"],
        "commit": made["commit"],
        "files": len(entries),
        "mounts": made["mounts"],
        "problems": found,
        **(_refused(query, dst) if found or made["key"] != query.get("key") else {}),
    }


def _refused(query: dict[str, Any], dst: str) -> dict[str, Any]:
    blocked = obstacles.blocked(query, dst)
    if blocked is not None:
        return {"refused": {**blocked.fields, "part": "dst"}}
    return {"refused": foreseen(query, dst)} if "keys" in query else {}


def _entries(made: dict[str, Any]) -> dict[str, Entry]:
    bound = _bound(made)
    found = [
        *(Entry(one["name"], HARD, one["of"]) for one in made["files"]),
        *(Entry(one["name"], POINTER, one["text"]) for one in made["pointers"]),
        *(Entry(name, EMPTY, bound.get(name, "")) for name in made["empty"]),
    ]
    return {entry.name: entry for entry in found}


def _bound(made: dict[str, Any]) -> dict[str, str]:
    """The files that are bound, by name."""
    above = f"{made['target'].rstrip('/')}/"
    return {one["target"].removeprefix(above): one["source"] for one in made["mounts"][1:]}


def _sources(made: dict[str, Any], entries: dict[str, Entry], query: dict[str, Any], dst: str) -> list[tuple[str, str]]:
    """What the staged folders say, if any of them was staged anew since."""
    if "what" in query:
        what, store = query["what"], query.get("store", "")
        was = [*(one["folder"] for one in made["sources"]), made["source"]]
        now = [*linkwish.folders_of(what, store), linkwish.cache_of(what)]
        if was != now:
            old, new = (", ".join(path for path in paths if path) for paths in (was, now))
            return [("", f"it is made from {old}, wanted {new}")]
    moved = [one["folder"] for one in made["sources"] if _stamp(one["folder"]) != one["ledger"]]
    if "what" not in query or not (moved or query.get("full")):
        return [(path, f"{path} is not what the export was made from") for path in moved]
    try:
        wish = linkwish.wish(query["what"], query.get("store", ""), dst, bound=_bound(made))
    except AgentError as error:
        return [(str(error.fields["where"]), f"{error.fields['where']}: {error.fields['what']}")]
    if wish.commit != made["commit"]:
        return [("", f"it is of commit {made['commit'][:12]}, the mirror has {wish.commit[:12]} now")]
    other = {name: (entry.how, entry.path) for name, entry in wish.entries.items()}
    mine = {name: (entry.how, entry.path) for name, entry in entries.items()}
    differ = sorted(name for name in {*other, *mine} if other.get(name) != mine.get(name))
    return [(name, f"{name} is staged otherwise by now") for name in differ]


def _mounts(made: dict[str, Any], dst: str, query: dict[str, Any]) -> list[str]:
    """What is wrong with the mounts: the export itself comes first, then one for each of its empty files, no more."""
    target = query["what"]["target"] if "what" in query else made["target"]
    first, *others = made["mounts"] or [{"source": "nothing", "target": "nothing"}]
    found = []
    if (first["source"], first["target"]) != (dst, target):
        found.append(f"its manifest mounts {first['source']} at {first['target']}, wanted {dst} at {target}")
    wanted, there = {f"{target.rstrip('/')}/{name}": name for name in made["empty"]}, {one["target"] for one in others}
    found += [
        f"{name} is an empty file, and its manifest binds nothing onto it"
        for at, name in wanted.items()
        if at not in there
    ]
    found += [
        f"its manifest mounts {one['source']} at {one['target']}, which is no empty file of it"
        for one in others
        if one["target"] not in wanted
    ]
    found += [
        f"its manifest mounts {one['source']} at {one['target']} writable"
        for one in made["mounts"]
        if one.get("read_only") is not True
    ]
    return found


def _stamp(path: str) -> stamps.Stamp | None:
    try:
        with questions.asking(path):
            return stamps.of(os.lstat(ledger.path_of(path)))
    except (FileNotFoundError, NotADirectoryError):
        return None
