"""Send a tokenizer of this node to who benches its lane from another machine: small files, as base64 in events."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

from sparkbuild.agent.wire.protocol import AgentError, Reporter

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
    folder, names = os.path.split(path)[0], [os.path.basename(path)]
    if os.path.isdir(path):
        folder, names = path, [name for name in NAMES if os.path.isfile(os.path.join(path, name))]
    is_one = bool(names) and (names[0] == NAMES[0] if os.path.isdir(path) else path.endswith(".json"))
    if not is_one or not os.path.isfile(os.path.join(folder, names[0])):
        what = "a folder without tokenizer.json" if os.path.isdir(path) else "no such file"
        raise AgentError(
            "the tokenizer for the throughput bench is missing",
            kind="config",
            where=path,
            found=what if not os.path.isfile(path) else "a file of another kind",
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
                raise AgentError("a file beside the tokenizer is too big for one", kind="config", where=path)
            reporter.emit("piece", name=name, data=base64.b64encode(piece).decode())
