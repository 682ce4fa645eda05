"""Text of others (engines, docker, labels, names, remote programs), made fit to be shown: one owner for both sides.

What is not printable is shown the way JSON writes it (a backslash, `u` and four digits), so that text within JSON stays
what it was. No escape sequence gets to a terminal, no line end forges a line of ours, no mark turns a line round.
"""

from __future__ import annotations

SHOWN = 400  # characters of somebody else's text in a message
_COLOUR = frozenset("0123456789;:")
_BLANKS = frozenset((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000))  # category Zs, less the space


def printable(text: str) -> str:
    """The text with blanks for tabs and line ends, without colours, and with escapes for what else cannot be
    shown. It is one line then.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _shown(char) for char in _without_colours(text))


def lines(text: str) -> str:
    """As `printable`, line by line: for texts of several lines, whose line ends are ours."""
    return "\n".join(printable(line) for line in text.split("\n"))


def one_line(text: str, most: int = SHOWN) -> str:
    """The text printable and on one line, at most `most` characters of it."""
    line = printable(" ".join(text[: most * 16].split()))
    return line if len(line) <= most and len(text) <= most * 16 else f"{line[: most - 1]}…"


def _without_colours(text: str) -> str:
    """Without `ESC [ ... m`: engines colour their logs, and a colour says nothing."""
    first, *rest = text.split("\x1b[")
    for piece in rest:
        end = next((at for at, char in enumerate(piece) if char not in _COLOUR), len(piece))
        first += piece[end + 1 :] if piece[end : end + 1] == "m" else f"\x1b[{piece}"
    return first


def _shown(char: str) -> str:
    if char in "\t\r\n\v\f":
        return " "
    code = ord(char)
    if code in _BLANKS:  # Python does not call them printable, and they may stand in a name
        return char
    if code > 0xFFFF:  # as JSON: two halves
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"
