"""Is an export as its manifest says? Only looked at: no content is read, and of what is made nothing is asked of the
source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.export import linkset
from sparkbuild.agent.export.linkset import EMPTY, HARD, POINTER, Entry
from sparkbuild.agent.export.place import foreseen, names, problem
from sparkbuild.agent.ledger import evicted, folder, index, mountlist
from sparkbuild.agent.ledger.ledger import LedgerError
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.ledger.mountlist import Manifest
    from sparkbuild.agent.wire.staging.exports import ExportFact, ExportQuery, Mount, NotExported
    from sparkbuild.agent.wire.staging.staged import NamedProblem, Refusal


def observe(query: ExportQuery) -> ExportFact | NotExported:
    """What is there, and the error that making it would end with: its folder is another's, or, with `keys`, see
    `place.foreseen`.
    """
    store = query.get("store", "")
    dst = inside(store, query["dst"])
    try:
        manifest = mountlist.read(dst)
    except LedgerError as error:
        text = f"the manifest in {dst} is unreadable: {error}"
        return {"present": False, "busy": "", "problem": text, "refused": _refused(query, dst)}
    if manifest is None:
        gone: NotExported = {"present": False, "busy": folder.busy(dst), "begun": bool(mountlist.noted(dst))}
        if eviction := evicted.told(store, dst):
            gone["evicted"] = eviction
        if last := index.before(store, query.get("of", ""), dst):
            gone["before"], gone["here"] = last, last == dst
        gone["refused"] = _refused(query, dst)
        return gone
    entries = _entries(manifest)
    problems: list[NamedProblem] = [
        {"file": name, "text": text} for name, entry in entries.items() if (text := problem(dst, entry))
    ]
    strange = (name for name in names(dst) if name not in entries)
    problems += [{"file": name, "text": f"{name} is not of the export"} for name in strange]
    problems += [{"file": path, "text": text} for path, text in _sources(manifest, entries, query, dst)]
    problems += [{"file": mountlist.path_of(dst), "text": text} for text in _mounts(manifest, dst, query)]
    return {
        "present": True,
        "key": manifest["key"],
        "parts": manifest["parts"],
        "commit": manifest["commit"],
        "files": len(entries),
        "mounts": manifest["mounts"],
        "problems": problems,
        "refused": _refused(query, dst) if problems or manifest["key"] != query.get("key") else {},
    }


def _refused(query: ExportQuery, dst: str) -> Refusal:
    from sparkbuild.agent.ledger import obstacles  # noqa: PLC0415 - 4 ms, and most looks find all as it should be

    blocked = obstacles.blocked(query, dst)
    if blocked is not None:
        return {**blocked.fields, "part": "dst"}
    return foreseen(query, dst) if "keys" in query else {}


def _entries(manifest: Manifest) -> dict[str, Entry]:
    bound = _bound(manifest)
    by_name = [
        *(Entry(link["name"], HARD, link["of"]) for link in manifest["files"]),
        *(Entry(link["name"], POINTER, link["text"]) for link in manifest["pointers"]),
        *(Entry(name, EMPTY, bound.get(name, "")) for name in manifest["empty"]),
    ]
    return {entry.name: entry for entry in by_name}


def _bound(manifest: Manifest) -> dict[str, str]:
    """The files that are bound, by name."""
    above = f"{manifest['target'].rstrip('/')}/"
    return {mount["target"].removeprefix(above): mount["source"] for mount in manifest["mounts"][1:]}


def _sources(manifest: Manifest, entries: dict[str, Entry], query: ExportQuery, dst: str) -> list[tuple[str, str]]:
    """What the staged folders say, if any of them was staged anew since."""
    if "what" in query:
        what, store = query["what"], query.get("store", "")
        was = [*(source["folder"] for source in manifest["sources"]), manifest["source"]]
        now = [*linkset.folders_of(what, store), linkset.cache_of(what)]
        if was != now:
            old, new = (", ".join(path for path in paths if path) for paths in (was, now))
            return [("", f"it is made from {old}, wanted {new}")]
    sources = {source["folder"]: source["ledger"] for source in manifest["sources"]}
    moved = [path for path, stamp in sources.items() if linkset.ledger_stamp(path) != stamp]
    if "what" not in query or not (moved or query.get("full")):
        return [(path, f"{path} is not what the export was made from") for path in moved]
    try:
        links = linkset.link_set(query["what"], query.get("store", ""), dst, bound=_bound(manifest))
    except AgentError as error:
        return [(str(error.fields["where"]), f"{error.fields['where']}: {error.fields['what']}")]
    if links.commit != manifest["commit"]:
        return [("", f"it is of commit {manifest['commit'][:12]}, the mirror has {links.commit[:12]} now")]
    other = {name: (entry.how, entry.path) for name, entry in links.entries.items()}
    mine = {name: (entry.how, entry.path) for name, entry in entries.items()}
    differ = sorted(name for name in {*other, *mine} if other.get(name) != mine.get(name))
    return [(name, f"{name} is staged otherwise by now") for name in differ]


def _mounts(manifest: Manifest, dst: str, query: ExportQuery) -> list[str]:
    """What is wrong with the mounts: the export itself comes first, then one for each of its empty files, no more."""
    target = query["what"]["target"] if "what" in query else manifest["target"]
    nothing: Mount = {"source": "nothing", "target": "nothing", "read_only": True}
    first, *others = manifest["mounts"] or [nothing]
    problems = []
    if (first["source"], first["target"]) != (dst, target):
        problems.append(f"its manifest mounts {first['source']} at {first['target']}, wanted {dst} at {target}")
    wanted = {f"{target.rstrip('/')}/{name}": name for name in manifest["empty"]}
    there = {mount["target"] for mount in others}
    problems += [
        f"{name} is an empty file, and its manifest binds nothing onto it"
        for at, name in wanted.items()
        if at not in there
    ]
    problems += [
        f"its manifest mounts {mount['source']} at {mount['target']}, which is no empty file of it"
        for mount in others
        if mount["target"] not in wanted
    ]
    problems += [
        f"its manifest mounts {mount['source']} at {mount['target']} writable"
        for mount in manifest["mounts"]
        if mount.get("read_only") is not True
    ]
    return problems
