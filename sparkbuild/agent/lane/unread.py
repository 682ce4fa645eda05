"""Records of lanes that cannot be gone by, another user's or none: each is a row, and hides no other."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkbuild.agent.wire.records import UnreadRecord

_NUMBER = (int, float)
_TEXT = (str,)
_NOTHING = type(None)
# what everything that reads a record relies on; what a launch did not write yet may be missing
_WANTED: dict[str, tuple[type, ...]] = {"parts": (dict,)}
_TYPES: dict[str, tuple[type, ...]] = {
    **_WANTED, "recipe": _TEXT, "runtime": _TEXT, "launch": _TEXT, "rank": (int,), "world_size": (int,), "key": _TEXT,
    "container": _TEXT, "pid": (int,), "start_ticks": (int,), "boot_id": _TEXT, "argv": (list,), "uses": (list,),
    "host": _TEXT, "port": (int,), "model_id": _TEXT, "lock": _TEXT, "log": _TEXT, "launched_at": _NUMBER,
    "launched_uptime": _NUMBER, "oom_kills": (int,),
    "ready": (dict, _NOTHING), "gates": (list, _NOTHING), "served_at": (*_NUMBER, _NOTHING),
    "stopping": (dict, _NOTHING), "stopped_at": (*_NUMBER, _NOTHING), "started": _TEXT,
}  # fmt: skip
_BY_RUNTIME = {"docker": ("container",), "process": ("pid", "start_ticks", "boot_id", "log")}


class Unread(NamedTuple):
    """A record that is there and cannot be read. `user` is whose it is when it is another's, "" for one that is no
    record; `since` is unix seconds, 0.0 when that is not known.
    """

    recipe: str
    path: str
    why: str
    user: str = ""
    since: float = 0.0
    uid: int = -1

    @property
    def text(self) -> str:
        """All of it, in one line."""
        if not self.user:
            return f"the record of lane {self.recipe} is none ({self.why}): {self.path}"
        since = time.strftime(" since %Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since)) if self.since else ""
        return f"lane {self.recipe} is of user {self.user}{since}, {self.why} ({self.path})"

    @property
    def row(self) -> UnreadRecord:
        """The same, as others are told."""
        return {"recipe": self.recipe, "text": self.text}

    @property
    def may_run(self) -> bool:
        """Whether it may be a lane that runs as processes: its user has some here. Of containers docker tells."""
        return bool(self.user) and procs.has_processes(self.uid)

    @property
    def advice(self) -> str:
        """What to do about it."""
        if not self.user:
            return f"mv {self.path} {self.path}.odd; what runs of it is shown by doit health then"
        return f"ask {self.user}; or name a `store` of your own for this node in config.toml"

    def error(self) -> AgentError:
        """The same as an error."""
        return AgentError(self.text, kind="node", next=self.advice)


def foreign(store: str, recipe: str, path: str) -> Unread | None:
    """Of a record that somebody else wrote, in a store that others may write to: by it, stop would end whatever process
    they name, with our rights. Ours are those of root, of us and of the store's owner, in a real folder of these.
    """
    for place in (os.path.dirname(path), path):
        try:
            seen = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if seen.st_uid not in {0, os.geteuid(), os.stat(store).st_uid}:
            return _of_another(recipe, path, "whose record is not gone by", seen, seen.st_mtime)
    return None


def closed(recipe: str, path: str) -> Unread:
    """Of a record that this user may not read."""
    why, folder = "who alone may read its record", os.path.dirname(path)
    for place, is_its_own in ((path, True), (folder, True), (os.path.dirname(folder), False)):
        with suppress(OSError):
            seen = os.stat(place)
            return _of_another(recipe, path, why, seen, seen.st_mtime if is_its_own else 0.0)
    return Unread(recipe, path, why, "another")


def _of_another(recipe: str, path: str, why: str, seen: os.stat_result, since: float) -> Unread:
    user = procs.name_of(seen.st_uid) or f"uid {seen.st_uid}"
    return Unread(recipe, path, why, user, since, seen.st_uid)


def wrong(record: Mapping[str, object]) -> str:
    """What of a record is not as it must be, "" when all is."""
    wanted = (*_WANTED, *_BY_RUNTIME.get(str(record.get("runtime", "process")), ()))
    missing = next((name for name in wanted if name not in record), "")
    if missing:
        return f"`{missing}` is missing"
    odd = next((name for name, value in record.items() if not isinstance(value, _TYPES.get(name, (object,)))), "")
    if odd:
        return f"`{odd}` is a {type(record[odd]).__name__}"
    parts = record["parts"]
    nodes = (parts.get("nodes") if isinstance(parts, dict) else None) or []
    lists = {"argv": record.get("argv") or [], "uses": record.get("uses") or [], "parts.nodes": nodes}
    for name, words in lists.items():
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return f"`{name}` is no list of texts"
    return ""
