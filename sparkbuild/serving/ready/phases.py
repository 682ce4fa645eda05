"""How far a starting engine is, by the public logs of vLLM, SGLang and llama.cpp: weights loaded, warming up. Pure."""

from __future__ import annotations

import re

import msgspec


class Phase(msgspec.Struct, frozen=True):
    """`done` of `total`, 0 of 0 when the log gives no figures."""

    text: str
    done: int = 0
    total: int = 0


# The bar of a counted thing: what is counted is looked for before it, so that no line makes one pattern try for long.
_BAR = re.compile(r"\|\s{0,9}(\d{1,9})/(\d{1,9})")
_COUNTED = (
    # Loading safetensors checkpoint shards:  40% Completed | 19/48 [02:11<03:21,  6.9s/it]
    (re.compile(r"(?i)load[a-z]{0,9}\s[^|]{0,99}?shards?\b"), "shards loaded"),
    # Capturing CUDA graphs ...: 51%|#####     | 34/67, Capturing batches (bs=2 avail_mem=9.1 GB): 50%|##  | 2/4
    (re.compile(r"(?i)captur[a-z]{0,9}\s[^|]{0,99}?(?:graphs?|batches)\b"), "graphs captured"),
)
_JOINED = (
    re.compile(r"(?i)waiting for ranks:? {1,9}(\d{1,9})/(\d{1,9})"),
    re.compile(r"(?i)rank \d{1,9} joined from \S{1,99} \((\d{1,9})/(\d{1,9})\)"),
)
# The first that fits counts: "Loading weights took 9 seconds" is the end of it.
_NAMED = {
    "weights loaded": r"\bloading (?:model )?weights took|model loading took|load weight end|\bmodel loaded\b",
    "loading weights": r"\bload_tensors\b|\bload(?:ing)? (?:model|weights?|checkpoint)\b",
    "capturing graphs": r"captur[a-z]{0,9} (?:the )?(?:cuda )?graph",
    "compiling": r"torch\.compile|\bcompiling\b",
    "allocating the KV cache": r"kv cache (?:size|memory|is allocated)|allocat[a-z]{0,9} kv|memory pool end",
    "warming up": r"warm(?:ing)?[ _-]?up",
    "starting to listen": r"application startup complete|server is listening|the server is fired up",
}


def phase_of(line: str) -> Phase | None:
    """The phase that a line of a log announces, None when it announces none."""
    text = line[-2000:]  # a progress bar that is written over and over is one long line; its end counts
    bars = list(_BAR.finditer(text))
    counted = [(bars[-1], name) for pattern, name in _COUNTED if bars and pattern.search(text)]
    counted += [(match, "ranks joined") for pattern in _JOINED for match in pattern.finditer(text)]
    for match, name in counted[-1:]:
        done, total = int(match[1]), int(match[2])
        if total > 0 and done <= total:
            return Phase(name, done, total)
    return next((Phase(name) for name, pattern in _NAMED.items() if re.search(pattern, text, re.IGNORECASE)), None)
