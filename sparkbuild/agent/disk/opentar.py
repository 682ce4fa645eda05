"""Tars that others wrote: Python's reader, without the ways in which an archive can hang it, fill its memory, or make
it raise what its callers do not expect.

Seen with Python 3.11: a size below zero leads back to the same header for ever; the text of a long name or of an
extended header is read at once, whatever its length; such headers behind each other end at Python's recursion limit;
numbers that are none, or end early, are an IndexError or an OverflowError; a few bytes are a sparse file of exabytes.
And a header that is damaged, or cut, counts as the end of the archive unless it is the first: members go missing.
"""

from __future__ import annotations

import tarfile
from typing import IO, Any

_TEXT = 1 << 20  # bytes of a long name or an extended header; real ones have some kilobytes
_TEXTS = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip


class _Member(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> tarfile.TarInfo:  # type: ignore[override]
        """See tarfile."""
        try:
            member = super().fromtarfile(tarfile_)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            raise  # the end
        except tarfile.TarError as error:
            raise tarfile.ReadError(str(error)) from None
        except (RecursionError, IndexError, KeyError, TypeError, OverflowError, ValueError) as error:
            raise tarfile.ReadError(f"a header that is none: {type(error).__name__}") from None
        # by what an extended header says of the size, too
        if member.size < 0 or tarfile_.offset <= member.offset:
            raise tarfile.ReadError("a size below zero")
        if tarfile_.offset >= 1 << 62:  # no file can be sought there
            raise tarfile.ReadError("a size that is none")
        if member.issparse():
            raise tarfile.ReadError("a sparse file")
        if not abs(member.mtime) < 1 << 62:
            raise tarfile.ReadError("a time that is none")
        return member

    def _proc_member(self, tarfile_: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in _TEXTS and self.size > _TEXT):
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(tarfile_)  # type: ignore[misc]
        return member


def opened(of: str | IO[bytes], mode: str = "r:", **more: Any) -> tarfile.TarFile:
    """A tar to be read, by its path or as an open file; `mode` is "r:" or, for what is read once, "r|". Opening and
    reading it raise TarError for all that is none, and what the file raises itself.
    """
    path, file = (of, None) if isinstance(of, str) else (None, of)
    return tarfile.open(path, mode, file, tarinfo=_Member, **more)  # type: ignore[call-overload,no-any-return]
