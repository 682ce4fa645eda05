"""Commands in messages as this user types them: `./doitw ...` when that is how doit was started."""

from __future__ import annotations

import os
import re

# set by ./doitw: plain `doit` is on nobody's PATH then
CALLED = os.environ.get("SPARKBUILD_CALLED_AS", "doit")

_COMMAND = re.compile(r"(?<![\w./])doit (?=[a-z-])")


def spoken(text: str) -> str:
    """A message with its `doit ...` commands as the user has to type them."""
    return text if CALLED == "doit" else _COMMAND.sub(lambda _match: f"{CALLED} ", text)
