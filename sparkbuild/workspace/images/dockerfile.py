"""What a Dockerfile may say: one list, for all versions of docker. It starts from the declared base, takes nothing else
from a registry or, when there is to be no network, from a URL, and keeps no secret. What is not on the list is refused
by name. Looks at a jinja2 template as well as at what is made of it: what a template's values say is seen then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from sparkbuild.workspace.images.dockerread import (
    TEMPLATE_VALUE,
    Expanded,
    Instruction,
    as_lines,
    expand,
    options,
    scan,
    shell_words,
)  # fmt: skip

TEMPLATE_BASE = "{{ base }}"

# Instructions, each with the flags that it may have.
MAY_STAND: Mapping[str, frozenset[str]] = {
    "FROM": frozenset({"platform"}),
    "RUN": frozenset({"mount", "network"}),
    "COPY": frozenset({"from", "chown", "chmod", "link", "parents", "exclude"}),
    "ADD": frozenset({"chown", "chmod", "link", "checksum", "keep-git-dir", "unpack", "exclude"}),
    "HEALTHCHECK": frozenset({"interval", "timeout", "start-period", "start-interval", "retries"}),
    **dict.fromkeys(
        ("ARG", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "LABEL", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
        frozenset(),
    ),
}
_TARGET = {"type", "target", "dst", "destination"}
# Types of RUN --mount, each with its keys. `ssh` is not among them: no key of the operator's is handed to a build.
MOUNTS: Mapping[str, frozenset[str]] = {
    "bind": frozenset({*_TARGET, "from", "source", "src", "rw", "readwrite", "ro", "readonly"}),
    "cache": frozenset(
        {*_TARGET, "from", "source", "src", "id", "sharing", "mode", "uid", "gid", "rw", "readwrite", "ro", "readonly"}
    ),
    "tmpfs": frozenset({*_TARGET, "size"}),
    "secret": frozenset({*_TARGET, "id", "required", "mode", "uid", "gid", "env"}),
}
# What takes BuildKit itself elsewhere when it is given as an argument of a build.
RESERVED_ARGS = re.compile(r"BUILDKIT_.*|SOURCE_DATE_EPOCH", re.IGNORECASE)

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", re.IGNORECASE)
_STAGE = re.compile(r"[a-z][a-z0-9_.-]*")
_OURS = re.compile(r"(?:(?:index\.)?docker\.io/)?sparkbuild/([^/:@]+)")  # what docker calls an image of the workspace


class Rules(msgspec.Struct, frozen=True):
    """What it is held against. `base` is what it must start from: a reference, `scratch`, or `{{ base }}` as long as it
    is a template. `args` are those of the build; `filled`: it is no template any more.
    """

    base: str
    network: bool
    secrets: tuple[str, ...]
    args: Mapping[str, str] = {}
    filled: bool = False


class Fault(msgspec.Struct, frozen=True):
    """Something that it may not say."""

    line: int
    what: str
    found: str = ""
    wanted: str = ""


def faults(text: str, rules: Rules) -> list[Fault]:
    """All that is wrong with a Dockerfile, in the order of its lines."""
    check = _Check(rules)
    found = list(_directives(as_lines(text, template=not rules.filled)))
    for instruction in scan(text, template=not rules.filled):
        found += check.instruction(instruction)
    if not check.stages:
        found.append(Fault(1, "it has no FROM", "", f"FROM {rules.base}"))
    return sorted(found, key=lambda fault: fault.line)


def _directives(lines: list[str]) -> Iterator[Fault]:
    for number, line in enumerate(lines, start=1):
        bare = line.strip()
        if bare and not bare.startswith("#"):
            return
        match = _DIRECTIVE.match(bare)
        if match and match[1].lower() in {"syntax", "escape"}:
            what = f"`# {match[1]}=` is not used here"
            why = "the Dockerfile syntax of the build node's BuildKit: another is code from a registry"
            yield Fault(number, what, match[2], why if match[1].lower() == "syntax" else "`\\` to continue a line")


class _Check:
    """One way through a Dockerfile: its stages by name ("" without one), and what its variables stand for there."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.base = re.sub(r"\s", "", rules.base) if not rules.filled else rules.base
        self.stages: list[str] = []
        self._top: dict[str, str] = {}  # ARG before the first FROM
        self._values: dict[str, str] = {}  # ARG and ENV of the stage
        self._kept: list[dict[str, str]] = []  # the ENV of each stage, for those that start from it

    def instruction(self, one: Instruction) -> Iterator[Fault]:
        """What is wrong with the next instruction."""
        if one.doubt:
            yield Fault(one.line, "it cannot be read for certain", one.doubt)
        if one.name == "ONBUILD":
            yield Fault(one.line, "ONBUILD would change what is built from this image", one.text)
            return
        if one.name not in MAY_STAND:
            if TEMPLATE_VALUE not in one.name or self.rules.filled:
                yield Fault(one.line, "an instruction that may not stand here", one.name, ", ".join(sorted(MAY_STAND)))
            return
        if one.name != "FROM" and not self.stages and one.name != "ARG":
            yield Fault(one.line, "it does not start with FROM", one.name, f"FROM {self.rules.base}")
            self._begin("", None)
        for flag in one.flags:
            yield from self._flag(one, flag)
        yield from getattr(self, f"_{one.name.lower()}", self._nothing)(one)

    def _nothing(self, _one: Instruction) -> Iterator[Fault]:
        return iter(())

    def _flag(self, one: Instruction, flag: str) -> Iterator[Fault]:
        name, _, value = flag[2:].partition("=")
        if name == "security":
            yield Fault(one.line, "it asks for more rights than a build has", flag)
        elif name not in MAY_STAND[one.name]:
            wanted = ", ".join(f"--{known}" for known in sorted(MAY_STAND[one.name])) or "none"
            yield Fault(one.line, f"a flag that {one.name} may not have here", flag, wanted)
        elif name == "network" and (value not in {"none", "default"} or (value != "none" and not self.rules.network)):
            yield Fault(one.line, "it asks for a network that it is not to have", flag, "no --network")
        elif name == "from":
            yield from self._other(one, value)
        elif name == "mount":
            yield from self._mount(one, flag, value)

    def _mount(self, one: Instruction, flag: str, value: str) -> Iterator[Fault]:
        if TEMPLATE_VALUE in value and not self.rules.filled:
            return
        try:
            pairs = options(value)
        except ValueError as error:
            yield Fault(one.line, "a mount that cannot be read", str(error), "key=value pairs with commas between them")
            return
        kind = {key: text.lower() for key, text in pairs}.get("type", "bind")
        if kind not in MOUNTS:
            yield Fault(one.line, "a mount of a type that may not stand here", kind, ", ".join(sorted(MOUNTS)))
            return
        given = dict(pairs)
        for key, text in pairs:
            if key not in MOUNTS[kind]:
                wanted = ", ".join(sorted(MOUNTS[kind]))
                yield Fault(one.line, f"a mount of type {kind} with a key that it may not have", key, wanted)
            elif key == "from":
                yield from self._other(one, text)
        if kind == "secret":
            target = given.get("target") or given.get("dst") or given.get("destination") or ""
            secret = given.get("id") or target.rpartition("/")[2]
            if secret not in self.rules.secrets:
                wanted = ", ".join(self.rules.secrets) or "one of `secrets` in image.toml, which has none"
                yield Fault(one.line, "it mounts a secret that is not declared", secret or flag, wanted)

    def _other(self, one: Instruction, image: str) -> Iterator[Fault]:
        """Files of another image are those of a stage above."""
        if TEMPLATE_VALUE in image and not self.rules.filled:
            return
        above = self.stages[:-1]
        if image.lower() not in [name for name in above if name] and not (image.isdigit() and int(image) < len(above)):
            what = "it takes files from an image that is not declared"
            yield Fault(one.line, what, image, _of_workspace(image) or "a stage above")

    def _from(self, one: Instruction) -> Iterator[Fault]:
        """Every stage starts from the base, from nothing, or from a stage of its own."""
        words = one.words
        image = expand(words[0], self._top, closed=True).text if words else ""
        name = words[2].lower() if len(words) > 2 and words[1].upper() == "AS" else ""
        hidden = not self.rules.filled and TEMPLATE_VALUE in name
        if len(words) not in {1, 3} or (len(words) == 3 and not hidden and not _STAGE.fullmatch(name)):
            yield Fault(one.line, "FROM cannot be read", one.text, "FROM <image>, or FROM <image> AS <name>")
        known = [stage for stage in self.stages if stage]
        if not self.stages and image != self.base:
            wanted = _of_workspace(image) or f"FROM {self.rules.base}, the `base` of image.toml"
            yield Fault(one.line, "it does not start from the declared base", f"FROM {image}", wanted)
        elif image not in {self.base, "scratch"} and image.lower() not in known:
            what = "a stage starts from an image that is not declared"
            wanted = _of_workspace(image) or f"{self.rules.base}, scratch, or a stage above"
            yield Fault(one.line, what, f"FROM {image}", wanted)
        self._begin(name, _last(self.stages, image.lower()))

    def _begin(self, name: str, above: int | None) -> None:
        self.stages.append(name)
        self._kept.append(dict(self._kept[above]) if above is not None else {})
        self._values = dict(self._kept[-1])

    def _arg(self, one: Instruction) -> Iterator[Fault]:
        values = self._values if self.stages else self._top
        for name, default in self._pairs(one):
            if self.stages and name in self._kept[-1]:
                continue  # ENV counts more
            found = self._top.get(name) if default is None else None if default.unknown else default.text
            _put(values, name, self.rules.args.get(name, found))
        yield from self._named(one)

    def _env(self, one: Instruction) -> Iterator[Fault]:
        for name, value in self._pairs(one):
            for values in (self._values, self._kept[-1]):
                _put(values, name, value.text if value and not value.unknown else None)
        yield from self._named(one)

    def _label(self, one: Instruction) -> Iterator[Fault]:
        for name, _ in self._pairs(one):
            if name.lower().startswith("sparkbuild."):
                yield Fault(one.line, "this label is set after the gates", name, "another name")
        yield from self._named(one)

    def _named(self, one: Instruction) -> Iterator[Fault]:
        """Names are written out, and none is a secret's: ARG and ENV stay in the image for everybody to read."""
        words = shell_words(one.text)
        if words is None:
            yield Fault(one.line, f"{one.name} has a quote that does not end", one.text[:200])
            return
        for word in words:
            key = expand(word.partition("=")[0], self._values if self.stages else self._top)
            if key.unknown:
                yield Fault(one.line, f"a name by variable in {one.name}", word, "the name itself")
            elif one.name != "LABEL" and key.text in self.rules.secrets:
                wanted = f"RUN --mount=type=secret,id={key.text}"
                yield Fault(one.line, f"a secret in {one.name} stays in the image", key.text, wanted)
            if one.name != "ARG" and "=" not in words[0]:
                return  # the old form: a name, and all that follows is its value

    def _pairs(self, one: Instruction) -> Iterator[tuple[str, Expanded | None]]:
        """Names and values, None for no value."""
        words = shell_words(one.text) or []
        if one.name != "ARG" and words and "=" not in words[0]:  # the old form
            words = [f"{words[0]}={' '.join(words[1:])}"]
        values = dict(self._values if self.stages else self._top)
        for word in words:
            name, equals, text = word.partition("=")
            yield expand(name, values).text, expand(text, values) if equals else None

    def _add(self, one: Instruction) -> Iterator[Fault]:
        for word in one.words[:-1]:
            source = expand(word, self._values)
            if self.rules.network or (TEMPLATE_VALUE in word and not self.rules.filled):
                continue
            if _ELSEWHERE.match(source.text):
                what = "it downloads, and the image is built without a network"
                yield Fault(one.line, what, f"ADD {source.text}", "an artifact of the lock, or network = true")
            elif source.unknown:
                what = "it may download: what a variable of ADD stands for cannot be told"
                yield Fault(one.line, what, word, "COPY, or an ARG or ENV of this stage with a value")


def _put(values: dict[str, str], name: str, value: str | None) -> None:
    """What a variable stands for from here on; None: nobody here knows."""
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def _last(stages: list[str], name: str) -> int | None:
    """The last stage of that name, which FROM means."""
    return next((at for at in range(len(stages) - 1, -1, -1) if stages[at] == name and name), None)


def _of_workspace(image: str) -> str:
    """What to write instead of docker's name for an image of the workspace; "" for any other image."""
    match = _OURS.match(image)
    if match is None:
        return ""
    return f'FROM {TEMPLATE_BASE}, and base = "image:{match[1]}" in image.toml: that is an image of the workspace'
