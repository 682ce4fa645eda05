"""A Dockerfile as BuildKit reads it (frontend/dockerfile/parser, shell): lines, instructions, flags, heredocs, words.

Where versions of BuildKit read one text in two ways, it is a `doubt`, and who checks refuses it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping

import msgspec

TEMPLATE_VALUE = "{{"

_JINJA = re.compile(r"\{#.*?#\}|\{%.*?%\}", re.DOTALL)
_VALUE = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
_CONTINUED = re.compile(r"\\[ \t]*$")
_BLANKS = re.compile(r"[ \t]+")
_ODD_BLANK = re.compile(r"[^\S \t]|[\x00-\x08\x0e-\x1f\x7f]")
_HEREDOC = re.compile(r"[0-9]*<<(-?)([^<]+)")
_VARIABLE = re.compile(r"\$(?:(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>[^}]*)\})")
_SET_BY_BUILDKIT = re.compile(r"(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT|STAGE)|(?:[a-z]+|[A-Z]+)_(?:proxy|PROXY)")
_HOLDS_HEREDOCS = {"RUN", "COPY", "ADD"}


class Instruction(msgspec.Struct, frozen=True):
    """One instruction with its continued lines joined; `line` counts from 1. `name` is in capitals, `text` what follows
    its `flags`. `doubt`: what of it cannot be read for certain, or "".
    """

    line: int
    name: str
    text: str
    flags: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def words(self) -> list[str]:
        """What follows the flags, at its blanks; the items of a JSON list. Quotes and variables are as they stand."""
        items = _json_items(self.text)
        return [word for word in _BLANKS.split(self.text) if word] if items is None else items


class Expanded(msgspec.Struct, frozen=True):
    """A word without its quotes and with its variables filled in; `unknown` are those that nobody knows."""

    text: str
    unknown: tuple[str, ...] = ()


def scan(text: str, *, template: bool = True) -> list[Instruction]:
    """The instructions of a Dockerfile. Of a template, `{% %}` and `{# #}` are not looked at, and `{{ }}` is a word."""
    return list(_instructions(as_lines(text, template=template)))


def as_lines(text: str, *, template: bool) -> list[str]:
    """The lines, without their ends. Lines of a template keep their numbers."""
    text = text.removeprefix("\ufeff")
    if template:
        text = _JINJA.sub(lambda match: "\n" * match[0].count("\n"), text)
        # one word, and none of the characters that end one or begin something
        text = _VALUE.sub(lambda match: "{{" + re.sub(r"[^\w.\[\]-]", "", match[1]) + "}}", text)
    return [line.rstrip("\r") for line in text.split("\n")]


def _instructions(lines: list[str]) -> Iterator[Instruction]:
    at = 0
    while at < len(lines):
        start, line = at, lines[at].lstrip(" \t")
        at += 1
        if not line.strip() or line.startswith("#"):
            continue
        line, at, doubt = _continued(line, lines, at)
        if _ODD_BLANK.search(line):
            doubt = doubt or "a blank or a control character that is neither space nor tab"
        name, _, rest = _BLANKS.sub(" ", line.strip(), count=1).partition(" ")
        flags, after, odd = _flags(rest)
        doubt = doubt or odd
        if name.upper() in _HOLDS_HEREDOCS and "<<" in rest and _json_items(after) is None:
            ends, odd = _heredocs(line)
            doubt = doubt or odd
            for end, tabs in ends:
                at = _past(lines, at, end, tabs=tabs)
                if at > len(lines):
                    doubt = doubt or f"its heredoc has no end: a line that is `{end}` and nothing else"
        yield Instruction(start + 1, name.upper(), after.strip(), flags, doubt)


def _past(lines: list[str], at: int, end: str, *, tabs: bool) -> int:
    """The line after the end of a heredoc; more than there are lines when it has none."""
    while at < len(lines) and (lines[at].lstrip("\t") if tabs else lines[at]) != end:
        at += 1
    return at + 1


def _continued(line: str, lines: list[str], at: int) -> tuple[str, int, str]:
    """A line with those that continue it, where the next one begins, and a doubt."""
    doubt = ""
    while match := _CONTINUED.search(line):
        if line[: match.start()].endswith("\\"):
            doubt = "a line that ends in two backslashes goes on in some versions of docker, and ends in others"
        line = line[: match.start()]
        while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
            at += 1
        if at == len(lines):
            break
        line += lines[at]  # as it is, without a blank between: `CO\` and `PY` are one word
        at += 1
    return line, at, doubt


def _json_items(text: str) -> list[str] | None:
    """The list of texts that an instruction may have for its words. What stands behind the list does not count."""
    if not text.startswith("["):
        return None
    try:
        items, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return items if all(isinstance(item, str) for item in items) else None


def _flags(rest: str) -> tuple[tuple[str, ...], str, str]:
    """The flags at the beginning, without their quotes, what follows them, and what is doubtful about them."""
    found: list[str] = []
    at = 0
    while True:
        at += len(rest[at:]) - len(rest[at:].lstrip(" \t"))
        if not rest.startswith("--", at):
            return tuple(found), rest[at:], ""
        start, quote, word = at, "", ""
        while at < len(rest) and (quote or rest[at] not in " \t"):
            letter = rest[at]
            at += 1
            if letter == "\\" and at < len(rest):
                word, at = word + rest[at], at + 1
            elif letter in "'\"" and quote in {"", letter}:
                quote = "" if quote else letter
            else:
                word += letter
        if quote or not word.isascii():
            return tuple(found), rest[start:], "a flag with a quote that does not end, or letters beyond ASCII"
        if word == "--":
            return tuple(found), rest[at:].lstrip(" \t"), ""
        found.append(word)


def shell_words(text: str) -> list[str] | None:
    """Words at blanks outside of quotes, quotes and all; None when a quote does not end."""
    words: list[str] = []
    word, quote, at = "", "", 0
    while at < len(text):
        letter = text[at]
        if letter == "\\" and quote != "'" and at + 1 < len(text):
            word += text[at : at + 2]
            at += 2
            continue
        if letter in "'\"" and quote in {"", letter}:
            quote = "" if quote else letter
        if letter in " \t" and not quote:
            words, word = [*words, word] if word else words, ""
        else:
            word += letter
        at += 1
    if quote:
        return None
    return [*words, word] if word else words


def _heredocs(line: str) -> tuple[list[tuple[str, bool]], str]:
    """The lines that end the heredocs of an instruction, with whether tabs before them do not count; and a doubt."""
    words = shell_words(line)
    if words is None or re.search(r"\$\{[^}]*[ \t]", line):
        return [], "a heredoc beside a quote that does not end, or beside ${...} with a blank in it"
    found = []
    for word in words:
        match = _HEREDOC.fullmatch(word)  # `<<<` is a shell's own, and `cat<<EOF` is none to BuildKit
        if match is not None:
            found.append((expand(match[2], {}).text, bool(match[1])))
    return found, ""


def expand(word: str, values: Mapping[str, str], *, closed: bool = False) -> Expanded:
    """A word as BuildKit takes it: quotes and escapes away, variables by their values. `closed`: what is not among them
    is not set, as before the first FROM, where no base image can set it.
    """
    out, unknown, quote, at = "", [], "", 0
    while at < len(word):
        letter = word[at]
        match = _VARIABLE.match(word, at) if letter == "$" and quote != "'" else None
        if match is not None:
            text = _value(match, values, closed=closed)
            if text is None:
                unknown.append(match[0])
            out += match[0] if text is None else text
            at = match.end()
        elif letter == "$" and quote != "'":
            unknown.append(word[at:])
            return Expanded(out + word[at:], tuple(unknown))
        elif letter == "\\" and quote != "'" and at + 1 < len(word) and (not quote or word[at + 1] in '"$\\'):
            out += word[at + 1]
            at += 2
        elif letter in "'\"" and quote in {"", letter}:
            quote = "" if quote else letter
            at += 1
        else:
            out += letter
            at += 1
    return Expanded(out, tuple(unknown))


def _value(match: re.Match[str], values: Mapping[str, str], *, closed: bool) -> str | None:
    """What a variable stands for, None when that cannot be told. The base image may set one that nobody here knows."""
    name, rest = match["bare"] or match["name"], match["rest"] or ""
    known = values.get(name)
    closed = closed and not _SET_BY_BUILDKIT.fullmatch(name)
    if not rest:
        return "" if known is None and closed else known
    modifier = re.fullmatch(r"(:?[-+])(.*)", rest)
    if (known is None and not closed) or modifier is None or "$" in rest:
        return None
    filled = (known or None) if modifier[1].startswith(":") else known
    if modifier[1].endswith("-"):
        return modifier[2] if filled is None else filled
    return "" if filled is None else modifier[2]


def options(value: str) -> list[tuple[str, str]]:
    """The `key=value` pairs of a flag like --mount: fields as of a CSV file, keys in lower case; "" for no value.
    ValueError when it is none.
    """
    try:
        rows = list(csv.reader([value]))
    except csv.Error as error:  # a field of more than 128 KiB, or a quote that is not closed
        raise ValueError(str(error)) from error
    fields = rows[0] if rows else []
    return [(key.strip().lower(), text) for key, _, text in (field.partition("=") for field in fields)]
