"""Files that are there without a record of ours, as other tools left them: kept when their content proves to be right.

With a sha256 or git sha1 the content is hashed where it is. Without, it is compared with the source: "quick" takes the
first, the last and 64 random chunks with data, "full" all of them, and then says which ones to mend. Names, sizes and
times prove nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from sparkbuild.agent.disk.pages import Pages
from sparkbuild.agent.ledger import content, digest, stamps
from sparkbuild.agent.ledger.content import Moved
from sparkbuild.agent.ledger.digest import CHUNK, WIDTH
from sparkbuild.agent.ledger.ledger import Record
from sparkbuild.agent.ledger.shape import Shape
from sparkbuild.agent.source.fileset import Wanted
from sparkbuild.agent.source.source import Source
from sparkbuild.agent.stage.copy import fetch
from sparkbuild.agent.wire.protocol import AgentError

_RANDOM = 64  # chunks


class Adopted(NamedTuple):
    """What a file proved to be. `record` is None when it is of no use; `bad` are the chunks to mend in it; `stat` what
    it was while it was read; `text` is for the log.
    """

    text: str
    record: Record | None = None
    bad: tuple[int, ...] = ()
    stat: os.stat_result | None = None


class Adopter(NamedTuple):
    """Reads a file of its wanted size under its name. `opener` opens its source."""

    algorithm: str
    full: bool
    opener: Callable[[Wanted], Source]
    moved: Moved

    def by_hash(self, path: str, wanted: Wanted, sha256: str, sha1: str) -> Adopted:
        """Against a sha256, or a git sha1 when there is none."""
        with content.opened(path) as pages:
            before = os.fstat(pages.fd)
            proof = content.prove(pages, _shape(wanted), self.algorithm, self.moved, sha1=not sha256)
            after = os.fstat(pages.fd)
        found, want, name = (proof.sha256, sha256, "sha256") if sha256 else (proof.sha1, sha1, "git sha1")
        if found != want or proof.stray:
            return Adopted(f"it has {name} {found}, wanted {want}")
        return self._same(wanted, proof, before, after, f"its {name} is the wanted one")

    def by_source(self, path: str, wanted: Wanted) -> Adopted:
        """Against the source, chunk by chunk. Raises AgentError when the source cannot be read."""
        shape = _shape(wanted)
        source = self.opener(wanted)
        try:
            if source.size != wanted.size:
                return Adopted("its source has another size")
            with content.opened(path) as pages:
                before = os.fstat(pages.fd)
                right = self._compare(pages, wanted, shape, source)
                source.check()
                if right is None:
                    return Adopted("it differs from its source")
                proof = content.prove(pages, shape, self.algorithm, self.moved)
                after = os.fstat(pages.fd)
        finally:
            source.close()
        wrong = {n for n, value in right.items() if proof.chunks[n * WIDTH : (n + 1) * WIDTH] != value}
        bad = tuple(sorted(wrong | set(proof.stray)))
        total = sum(1 for _ in shape.with_data())
        if not bad:
            text = f"{len(right)} of its {total} chunks were compared with the source"
            return self._same(wanted, proof, before, after, text)
        if not self.full or len(bad) >= total:
            return Adopted("it differs from its source")
        chunks = bytearray(proof.chunks)
        for index, value in right.items():
            chunks[index * WIDTH : (index + 1) * WIDTH] = value
        text = f"it differs from its source in {len(bad)} of {total} chunks"
        return Adopted(text, self._record(wanted, "", bytes(chunks)), bad, after)

    def _compare(self, pages: Pages, wanted: Wanted, shape: Shape, source: Source) -> dict[int, bytes] | None:
        """The digests that the compared chunks have in the source; None as soon as one differs in a quick look."""
        function = digest.function(self.algorithm)
        if function is None:
            raise AgentError(f"this python has no {self.algorithm}", kind="node")
        filled = list(shape.with_data())
        picks = filled if self.full else _some(filled)
        buffer, right = memoryview(bytearray(min(CHUNK, max(1, shape.size)))), {}
        for index in picks:
            with buffer[: shape.length(index)] as view:
                fetch(wanted.called, source, shape.pieces(index), index, view, again=wanted.again)
                right[index] = function(view)
                self.moved(shape.weight(index))
                if not self.full and (pages.read(view, index * CHUNK) != len(view) or function(view) != right[index]):
                    return None
        return right

    def _same(
        self, wanted: Wanted, proof: content.Proof, before: os.stat_result, after: os.stat_result, text: str
    ) -> Adopted:
        if stamps.of(before) != stamps.of(after):
            return Adopted("it was changed while it was being read")
        return Adopted(f"adopted: {text}", self._record(wanted, proof.sha256, proof.chunks, proof.ends), (), after)

    def _record(self, wanted: Wanted, sha256: str, chunks: bytes, ends: bytes = b"") -> Record:
        return Record(wanted.name, wanted.size, sha256, chunks, self.algorithm, wanted.identity, wanted.extents, ends)


def _shape(wanted: Wanted) -> Shape:
    return Shape(wanted.size, wanted.extents)


def _some(filled: list[int]) -> list[int]:
    """First, last and random ones, each once, in order: a source may not like to go back."""
    if len(filled) <= _RANDOM + 2:
        return filled
    draw = {filled[0], filled[-1]}
    while len(draw) < _RANDOM + 2:
        draw.add(filled[int.from_bytes(os.urandom(8), "big") % len(filled)])
    return sorted(draw)
