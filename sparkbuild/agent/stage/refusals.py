"""Why a staging is refused, or ends: what is wrong, where, and what to do about it."""

from __future__ import annotations

import shlex

from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.ledger.part import Part
from sparkbuild.agent.source.fileset import Wanted
from sparkbuild.agent.source.source import Source
from sparkbuild.agent.wire.protocol import AgentError
from sparkbuild.agent.wire.words import size

ANEW = "compare it with what it was downloaded or copied from, and fetch it anew"
_SUMS = {"sha256": "sha256sum", "git sha1": "git hash-object"}


def another_content(part: Part, source: Source, found: str, wanted: str, *, comparable: bool) -> AgentError:
    """A file has another digest than is wanted. `comparable`: so the file at the path of the source would."""
    next_ = "run again: all of it is made anew then, from what the source gives now. Nothing of it was kept"
    if comparable:
        next_ = (
            f"on that node, {_SUMS[found.rpartition(' ')[0]]} {shlex.quote(source.path)} tells whether the source is "
            f"wrong: {part.again or 'fetch it anew'}; else run again. Nothing of it was kept"
        )
    return AgentError(
        f"{part.title} is not what was wanted",
        kind="integrity",
        where=source.path,
        found=found if comparable else f"{found} of the file that is made from it",
        wanted=wanted,
        next=next_,
    )


def no_better(part: Part, source: Source, index: int, chunks: int) -> AgentError:
    """A damaged file is to be mended from a source that is another by now."""
    return AgentError(
        f"{part.title} cannot be mended: its source is not what it was staged from",
        kind="integrity",
        where=source.path,
        found=f"another content in chunk {index + 1} of {chunks}, bytes {index * CHUNK} to {(index + 1) * CHUNK}",
        wanted="the content that it was staged with",
        next=f"{part.again or ANEW}, then run again; {part.title} on this node stays as it is until then",
    )


def too_short(title: str, source: Source, end: int, again: str) -> AgentError:
    """A source ends before byte `end`. `again`: how to fetch it anew."""
    return AgentError(
        f"the source of {title} ends too soon",
        kind="integrity",
        where=source.path,
        found=f"an end before byte {end}",
        wanted=f"{source.size} bytes",
        next="on that node, look whether something writes to it or cuts it; if it stays short: "
        f"{again or ANEW}; then run again",
    )


def another_size(wanted: Wanted, found: int) -> AgentError:
    """A source has another size than it had when it was planned."""
    return AgentError(
        f"the source of {wanted.called} has another size",
        kind="integrity",
        where=wanted.path,
        found=f"{found} bytes",
        wanted=f"{wanted.size} bytes",
        next=f"run again if something writes to it; else {wanted.again or ANEW}",
    )


def no_room(dst: str, *, need: int, free: int, back: int, min_free: int, recipe: str) -> AgentError:
    """The disk has not so many bytes: `back` are those that the staging gives back first."""
    where = f"min_free, recipes/{recipe}/recipe.toml" if recipe else "min_free"
    spare = f" + {size(min_free)} to stay free ({where})" if min_free else ""
    extra = f" + {size(back)} that this staging gives back first" if back else ""
    return AgentError(
        "not enough room to stage",
        kind="space",
        where=dst,
        found=f"{size(free)} free{extra}",
        wanted=f"{size(need)} for the data{spare}; {size(need + min_free - free - back)} missing",
        next=f"make room on that file system{', or lower min_free' if min_free else ''}",
    )
