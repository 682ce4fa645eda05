"""What a starting engine's log says of how far it is: weights loaded, compiling, warming up. Pure.

Patterns are those of vLLM, SGLang and llama.cpp as their public logs show them; a line that fits none says nothing.
"""

from __future__ import annotations

import re

import msgspec


class Phase(msgspec.Struct, frozen=True):
    """`done` of `total`, 0 of 0 when the log gives no figures."""

    text: str
    done: int = 0
    total: int = 0


_COUNTED = (
    # Loading safetensors checkpoint shards:  40% Completed | 19/48 [02:11<03:21,  6.9s/it]
    (re.compile(r"(?i)load\w*\s.*?shards?\b.*?\|\s*(\d+)/(\d+)"), "shards loaded"),
    # Capturing CUDA graphs ...: 51%|#####     | 34/67
    (re.compile(r"(?i)captur\w*\s.*?graphs?\b.*?\|\s*(\d+)/(\d+)"), "graphs captured"),
    (re.compile(r"(?i)waiting for ranks:?\s+(\d+)/(\d+)"), "ranks joined"),
    (re.compile(r"(?i)rank \d+ joined from \S+ \((\d+)/(\d+)\)"), "ranks joined"),
)
_NAMED = (
    (
        re.compile(r"(?i)\bload_tensors\b|\bload(?:ing)? (?:model|weights|checkpoint)\b"),
        "loading weights",
    ),
    (re.compile(r"(?i)model loading took|load weight end|loading weights took|model loaded"), "weights loaded"),
    (re.compile(r"(?i)torch\.compile|compiling"), "compiling"),
    (re.compile(r"(?i)captur\w* (?:the )?(?:cuda )?graph"), "capturing graphs"),
    (re.compile(r"(?i)kv cache (?:size|memory)|allocat\w* kv|memory pool end"), "allocating the KV cache"),
    (re.compile(r"(?i)warm(?:ing)?[ _-]?up"), "warming up"),
    (re.compile(r"(?i)application startup complete|server is listening|the server is fired up"), "starting to listen"),
)


def phase_of(line: str) -> Phase | None:
    """The phase that a line of a log announces, None when it announces none."""
    text = line[-2000:]  # a progress bar that is written over and over is one long line; its end counts
    for pattern, name in _COUNTED:
        found = list(pattern.finditer(text))
        if found:
            done, total = int(found[-1][1]), int(found[-1][2])
            if 0 < total < 10**9 and done <= total:
                return Phase(name, done, total)
    return next((Phase(name) for pattern, name in _NAMED if pattern.search(text)), None)
