"""What a Dockerfile may say: it starts from the declared base, takes nothing else from a registry or, when there is to
be no network, from a URL, and keeps no secret. Looks at a jinja2 template as well as at what is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

TEMPLATE_BASE = "{{ base }}"

_JINJA = re.compile(r"\{#.*?#\}|\{%.*?%\}", re.DOTALL)
_VALUE = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)")
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_URL = re.compile(r"[a-z+]+://|git@", re.IGNORECASE)
_OURS = re.compile(r"(?:(?:index\.)?docker\.io/)?sparkbuild/([^/:@]+)")  # what docker calls an image of the workspace


class Instruction(msgspec.Struct, frozen=True):
    """One instruction with its continued lines joined; `line` counts from 1. `name` is in capitals."""

    line: int
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """What follows the name, without the flags."""
        return [word for word in self.text.split() if not word.startswith("--")]

    @property
    def flags(self) -> list[str]:
        """The flags at its beginning: `--from=x`."""
        found = []
        for word in self.text.split():
            if not word.startswith("--"):
                break
            found.append(word)
        return found


class Rules(msgspec.Struct, frozen=True):
    """What it is held against. `base` is what it must start from: a reference, `scratch`, or `{{ base }}` as long as it
    is a template.
    """

    base: str
    network: bool
    secrets: tuple[str, ...]


class Fault(msgspec.Struct, frozen=True):
    """Something that it may not say."""

    line: int
    what: str
    found: str = ""
    wanted: str = ""


def scan(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile. What stands in jinja2's `{% %}` and `{# #}` is not looked at."""
    blank = _JINJA.sub(lambda match: "\n" * match[0].count("\n"), text)
    joined = _VALUE.sub(lambda match: "{{" + match[1].replace(" ", "") + "}}", blank)
    found: list[Instruction] = []
    lines = iter(enumerate(joined.split("\n"), start=1))
    for number, raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        while line.endswith("\\"):
            line = line[:-1].rstrip()
            following = next(
                (text.strip() for _, text in lines if text.strip() and not text.strip().startswith("#")), ""
            )
            line = f"{line} {following}"
            if not following:
                break
        name, _, rest = line.partition(" ")
        for _, word in _HEREDOC.findall(rest) if name.upper() in {"RUN", "COPY", "ADD"} else ():
            for _, inner in lines:
                if inner.strip() == word:
                    break
        found.append(Instruction(number, name.upper(), rest.strip()))
    return found


def faults(text: str, rules: Rules) -> list[Fault]:
    """All that is wrong with a Dockerfile, in the order of its lines."""
    instructions = scan(text)
    found = [*_directives(text), *_stages(instructions, rules)]
    for instruction in instructions:
        check = _CHECKS.get(instruction.name)
        if check is not None:
            found += check(instruction, rules)
    return sorted(found, key=lambda fault: fault.line)


def _directives(text: str) -> Iterator[Fault]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.startswith("#"):
            return
        match = _DIRECTIVE.match(line)
        if match and match[1].lower() in {"syntax", "escape"}:
            what = f"`# {match[1]}=` is not used here"
            why = "the Dockerfile syntax of the build node's BuildKit: another is code from a registry"
            yield Fault(number, what, match[2], why if match[1].lower() == "syntax" else "`\\` to continue a line")


def _stages(instructions: list[Instruction], rules: Rules) -> Iterator[Fault]:
    """Every image that it takes something from is the base, nothing, or a stage of its own."""
    base = rules.base.replace(" ", "")
    stages: list[str] = []
    for instruction in instructions:
        if instruction.name == "FROM":
            words = instruction.words
            image = words[0] if words else ""
            if not stages and image != base:
                wanted = _of_workspace(image) or f"FROM {rules.base}, the `base` of image.toml"
                yield Fault(instruction.line, "it does not start from the declared base", f"FROM {image}", wanted)
            elif image not in {base, "scratch"} and image.lower() not in stages:
                yield Fault(
                    instruction.line,
                    "a stage starts from an image that is not declared",
                    f"FROM {image}",
                    _of_workspace(image) or f"{rules.base}, scratch, or a stage above",
                )
            stages.append(words[2].lower() if len(words) > 2 and words[1].upper() == "AS" else "")
        else:
            if not stages and instruction.name != "ARG":
                yield Fault(instruction.line, "it does not start with FROM", instruction.name, f"FROM {rules.base}")
                stages.append("")
            for other in _others(instruction):
                if other.lower() not in stages[:-1] and not (other.isdigit() and int(other) < len(stages) - 1):
                    what = "it takes files from an image that is not declared"
                    yield Fault(instruction.line, what, other, _of_workspace(other) or "a stage above")
    if not stages:
        yield Fault(1, "it has no FROM", "", f"FROM {rules.base}")


def _of_workspace(image: str) -> str:
    """What to write instead of docker's name for an image of the workspace; "" for any other image."""
    match = _OURS.match(image)
    if match is None:
        return ""
    return f'FROM {TEMPLATE_BASE}, and base = "image:{match[1]}" in image.toml: that is an image of the workspace'


def _others(instruction: Instruction) -> Iterator[str]:
    """What else an instruction takes files from."""
    for flag in instruction.flags:
        name, _, value = flag.partition("=")
        if name == "--from":
            yield value
        elif name == "--mount":
            yield from (part[5:] for part in value.split(",") if part.startswith("from="))


def _add(instruction: Instruction, rules: Rules) -> Iterator[Fault]:
    for word in instruction.words[:-1]:
        if _URL.match(word.strip("[\"',")) and not rules.network:
            what = "it downloads, and the image is built without a network"
            yield Fault(instruction.line, what, f"ADD {word}", "an artifact of the lock, or network = true")


def _run(instruction: Instruction, rules: Rules) -> Iterator[Fault]:
    for flag in instruction.flags:
        name, _, value = flag.partition("=")
        if name == "--network" and (value == "host" or (value != "none" and not rules.network)):
            yield Fault(instruction.line, "it asks for a network that it is not to have", flag, "no --network")
        if name == "--security":
            yield Fault(instruction.line, "it asks for more rights than a build has", flag)
        parts = dict(part.partition("=")[::2] for part in value.split(","))
        if name == "--mount" and parts.get("type") == "secret":
            secret = parts.get("id") or (parts.get("target") or "").rpartition("/")[2]
            if secret not in rules.secrets:
                wanted = ", ".join(rules.secrets) or "one of `secrets` in image.toml, which has none"
                yield Fault(instruction.line, "it mounts a secret that is not declared", secret or flag, wanted)


def _variables(instruction: Instruction, rules: Rules) -> Iterator[Fault]:
    """ARG and ENV stay in the image for everybody to read."""
    names = {word.partition("=")[0] for word in instruction.words}
    for secret in rules.secrets:
        if secret in names:
            wanted = f"RUN --mount=type=secret,id={secret}"
            yield Fault(instruction.line, f"a secret in {instruction.name} stays in the image", secret, wanted)


def _label(instruction: Instruction, _rules: Rules) -> Iterator[Fault]:
    names = [word.partition("=")[0].strip("\"'") for word in instruction.words]
    yield from (
        Fault(instruction.line, "this label is set after the gates", name, "another name")
        for name in names
        if name.startswith("sparkbuild.")
    )


def _onbuild(instruction: Instruction, _rules: Rules) -> Iterator[Fault]:
    yield Fault(instruction.line, "ONBUILD would change what is built from this image", instruction.text)


_CHECKS: dict[str, Callable[[Instruction, Rules], Iterator[Fault]]] = {
    "ADD": _add,
    "RUN": _run,
    "ARG": _variables,
    "ENV": _variables,
    "LABEL": _label,
    "ONBUILD": _onbuild,
}
