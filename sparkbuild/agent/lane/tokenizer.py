"""Send a tokenizer of this node to who benches its lane from another machine: small files, as base64 in events."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

from sparkbuild.agent.wire.protocol import Reporter, config_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import TokenizerRequest, TokenizerResult

# what the libraries look for in a folder; the first must be there
NAMES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "chat_template.jinja", "tokenizer.model", "config.json",
)  # fmt: skip
MOST = 256 << 20  # bytes of one file
_PIECE = 192 << 10


def run(request: TokenizerRequest, reporter: Reporter) -> TokenizerResult:
    """See TOKENIZER. Emits {"event": "piece", "name", "data": base64}, in order."""
    path = request["path"]
    if os.path.isdir(path):
        folder, names = path, [name for name in NAMES if os.path.isfile(os.path.join(path, name))]
        problem = "" if NAMES[0] in names else "a folder without tokenizer.json"
    else:
        folder, names = os.path.dirname(path), [os.path.basename(path)]
        problem = "" if path.endswith(".json") else "a file of another kind"
        problem = problem if os.path.isfile(path) else "no such file"
    if problem:
        raise config_error(
            "the tokenizer for the throughput bench is missing",
            where=path,
            found=problem,
            wanted="a tokenizer.json, or a folder with one, on the node of rank 0 (a GGUF file only on this machine)",
        )
    for name in names:
        _send(os.path.join(folder, name), name, reporter)
    return {"names": names}


def _send(path: str, name: str, reporter: Reporter) -> None:
    left = MOST
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise config_error("a file beside the tokenizer is too big for one", where=path)
            reporter.emit("piece", name=name, data=base64.b64encode(piece).decode())
