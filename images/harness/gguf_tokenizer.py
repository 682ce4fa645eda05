#!/usr/bin/env python3
"""Makes a tokenizer.json from the metadata of a GGUF file, so that prompts are measured in the model's own tokens.

    gguf_tokenizer.py MODEL.gguf OUT.json

Byte-level BPE vocabularies ("gpt2" in GGUF terms) whose way of splitting words is in `SPLITS`; anything else ends with
one line on stderr and exit code 2, and then the recipe has to name the model's own tokenizer.json. GGUF keys and token
types: the GGUF specification; how each `tokenizer.ggml.pre` splits: llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

# tokenizer.ggml.pre -> the regular expressions that are applied one after the other.
SPLITS = {
    "smollm": (
        r"\p{N}",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    ),
}
CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type


def fail(text: str) -> NoReturn:
    """End with one clear line."""
    print(f"gguf_tokenizer.py: error: {text}", file=sys.stderr)
    raise SystemExit(2)


def metadata(path: Path) -> dict[str, Any]:
    """The tokenizer's fields of a GGUF file."""
    from gguf import GGUFReader  # noqa: PLC0415 - errors of the command line come first

    try:
        reader = GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as error:
        fail(f"cannot read {path}: {error}")
    return {key: field.contents() for key, field in reader.fields.items() if key.startswith("tokenizer.ggml.")}


def build(fields: dict[str, Any]) -> Any:
    """A `tokenizers.Tokenizer` that gives the ids the engine gives."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers  # noqa: PLC0415 - as above
    from tokenizers.models import BPE  # noqa: PLC0415 - as above

    model, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in SPLITS:
        known = " or ".join(SPLITS)
        fail(f"{model!r} tokens split as {pre!r} are not known, only 'gpt2' split as {known}: name a tokenizer.json")
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(BPE({token: number for number, token in enumerate(tokens)}, merges))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[pre]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, types, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            added = AddedToken(token, special=kind == CONTROL, normalized=False)
            tokenizer.add_special_tokens([added]) if kind == CONTROL else tokenizer.add_tokens([added])
    return tokenizer


def main(arguments: list[str]) -> None:
    """Read, build, write beside the target, rename."""
    if len(arguments) != 2:
        fail("usage: gguf_tokenizer.py MODEL.gguf OUT.json")
    source, target = Path(arguments[0]), Path(arguments[1])
    tokenizer = build(metadata(source))
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(tokenizer.to_str(), encoding="utf-8")
        os.replace(part, target)
    except OSError as error:
        fail(f"cannot write {target}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
