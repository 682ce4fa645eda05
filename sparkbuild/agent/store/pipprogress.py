"""How far pip is: bytes of wheels that have come, of those that it says it downloads."""

from __future__ import annotations

import os
import re

# As pip 20 to 26 print it: "  Downloading numpy-2.3.0-cp311-cp311-manylinux_2_28_x86_64.whl (16.6 MB)". Decimal units.
_DOWNLOAD = re.compile(r"^\s*Downloading (\S+\.whl) \(([0-9]{1,12}(?:\.[0-9]{1,9})?) (bytes|kB|MB|GB)\)")
_HAS = re.compile(r"^\s*(?:Using cached|Processing|Requirement already satisfied:) ")
_UNITS = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_INSTALLS = "Installing collected packages"


class PipProgress:
    """What pip printed until now. `expected` is the number of packages that it is to get."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._sizes: dict[str, int] = {}  # announced bytes, by file
        self._had = 0  # packages that are not downloaded
        self.installs = False  # all are here, and are being unpacked

    def line(self, text: str) -> None:
        """Take in one line of pip's output."""
        announced = _DOWNLOAD.match(text)
        if announced:
            self._sizes[os.path.basename(announced[1])] = round(float(announced[2]) * _UNITS[announced[3]])
        self._had += bool(_HAS.match(text))
        self.installs = self.installs or text.startswith(_INSTALLS)

    def amount(self, folder: str) -> tuple[int, int | None]:
        """Bytes of wheels below `folder`, and of all that are to come: None while pip has not named each of them.

        pip downloads into one folder and copies into another, so a file may be there twice: it is counted once.
        """
        present: dict[str, int] = {}
        for base, _, names in os.walk(folder):
            for name in names:
                if name.endswith(".whl"):
                    try:
                        present[name] = max(present.get(name, 0), os.lstat(os.path.join(base, name)).st_size)
                    except OSError:
                        continue  # moved meanwhile
        total = sum(self._sizes.values()) if len(self._sizes) + self._had >= self._expected else 0
        done = sum(present.values())
        return (min(done, total), total) if total else (done, None)
