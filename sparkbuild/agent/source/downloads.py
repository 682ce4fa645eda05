"""Downloads that did not end, by the names that tools give to what is not all there yet.

`x.incomplete`, `x.part` and their like hold what came so far; `x.aria2` tells what is lacking of `x`, which has its
full size from the start; rsync writes into `.x.Ab12Cd` beside an older `x`. Either way the file beside is not what was
asked for last, and may be a part of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

_SURELY = (".incomplete", ".aria2", ".crdownload")  # nobody gives these to a file that is whole
_BESIDE = (*_SURELY, ".part", ".partial", ".download")
_RSYNC = re.compile(r"\.(.+)\.[A-Za-z0-9]{6}", re.DOTALL)


def begun(there: Collection[str]) -> dict[str, str]:
    """Of paths in a folder: those of files of which a download did not end, and what is left of it there. The file
    itself may be among them or not.
    """
    names = set(there)
    left = {}
    for path in sorted(names):
        folder, name = os.path.split(path)
        end = next((end for end in _BESIDE if name.endswith(end) and name != end), "")
        written = None if end else _RSYNC.fullmatch(name)
        if not end and written is None:
            continue
        file = os.path.join(folder, name.removesuffix(end) if written is None else written[1])
        if file in names or end in _SURELY:
            left[file] = path
    return left
