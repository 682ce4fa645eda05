"""Images of kind `dockerfile` from a workspace: what is checked, the goals, what changes the key, what is filled in."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.app.goals.assemble import Goals, assemble
from sparkbuild.core.errors import ConfigError
from sparkbuild.core.plan import OK, RUN, UNKNOWN
from sparkbuild.core.state import Made
from sparkbuild.images.archive import ArchiveKind
from sparkbuild.images.dockerfile import DockerfileSpec, key_of
from sparkbuild.images.rendering import dockerfile, refuse_secrets, values_of
from sparkbuild.workspace.load import load
from tests.workspace.helpers import FORMAT, put

TOML = """\
kind = "dockerfile"
lock = "pins"
base = "image:base"
build_node = "dgx1"
sources = ["eng"]
artifacts = ["wheel"]
files = ["run.py"]
args = { VERSION = "1.2", LANES = 3, FAST = true }
secrets = ["TOKEN"]

[patches]
eng = ["fix.patch"]

[[gates]]
id = "version"
command = ["eng", "--version"]
expect = "1.2"
"""
DOCKERFILE = """\
FROM {{ base }}
COPY {{ sources.eng }} /src
COPY {{ artifacts.wheel }} {{ files }}/run.py /opt/
RUN echo {{ args.VERSION }} {{ args.LANES }} {{ args.FAST }} {{ architecture }}
"""
PATCH = "a patch\n"
LOCK = {
    "busybox.artifact.url": "http://deb.example.org/busybox_1_amd64.deb",
    "busybox.artifact.sha256": "1" * 64,
    "eng.repository": "https://git.example.org/eng.git",
    "eng.commit": "2" * 40,
    "eng.tree": "3" * 40,
    "eng.time": "1700000000",
    "wheel.artifact.url": "https://example.org/eng-1.2.whl",
    "wheel.artifact.sha256": "4" * 64,
    "runtime.base.image": f"example/cuda:13@sha256:{'5' * 64}",
    "input.images/eng/fix.patch.sha256": hashlib.sha256(PATCH.encode()).hexdigest(),
}
CONFIG = '[nodes.dgx1]\n[nodes.dgx2]\n[clusters.pair]\nnodes = ["dgx1", "dgx2"]\n'


def space(root: Path, toml: str = TOML, text: str = DOCKERFILE, lock: dict[str, str] | None = None) -> Path:
    pins = {key: value for key, value in {**LOCK, **(lock or {})}.items() if value}
    put(root, "config.toml", CONFIG)
    put(root, "locks/pins.source.lock", FORMAT + "".join(f"{key}={value}\n" for key, value in pins.items()))
    put(root, "images/base/image.toml", 'kind = "docker"\nlock = "pins"\ndebs = ["busybox"]\n')
    put(root, "images/eng/image.toml", toml)
    put(root, "images/eng/Dockerfile.j2", text)
    put(root, "images/eng/run.py", "run")
    put(root, "images/eng/fix.patch", PATCH)
    return root


def goals(root: Path, *args: Any, **more: Any) -> Goals:
    made = assemble(load(space(root, *args, **more)))
    assert made.problems == {}
    return made


def test_the_goals(tmp_path: Path) -> None:
    made = goals(tmp_path)
    goal = made.by_task["image:eng"]
    assert str(goal.uri) == "archive://dgx1/eng"
    assert [need.task for need in goal.needs] == ["source:pins:eng", "artifact:pins:wheel", "sync:base:dgx1"]
    assert {need.node for need in goal.needs[:2]} == {"local"}, "where the context is made"
    assert all(need.transient for need in goal.needs)
    assert goal.pools == ("build", "dgx1")
    assert goal.spec.epoch == 946_684_800, "of no commit"
    assert goal.spec.base.reference == f"sparkbuild/base:{made.by_task['image:base'].key.short}"
    assert {item.path for item in goal.inputs} == {
        f"images/eng/{name}" for name in ("Dockerfile.j2", "run.py", "fix.patch")
    }


def test_each_node_of_a_recipe_gets_it(tmp_path: Path) -> None:
    recipe = (
        'cluster = "pair"\nimage = "eng"\nmodel_id = "m"\n[serve]\nruntime = "docker"\ncommand = ["x"]\nport = 8000\n'
    )
    put(tmp_path, "recipes/r/recipe.toml", recipe)
    made = goals(tmp_path)
    syncs = [made.by_task[f"sync:eng:{node}"] for node in ("dgx1", "dgx2")]
    assert [sync.needs for sync in syncs] == [(made.by_task["image:eng"],)] * 2
    assert list(made.lanes["r"].needs) == syncs


def test_a_base_that_a_recipe_wants_on_the_build_node_stays_wanted(tmp_path: Path) -> None:
    recipe = (
        'cluster = "pair"\nimage = "base"\nmodel_id = "m"\n[serve]\nruntime = "docker"\ncommand = ["x"]\nport = 8000\n'
    )
    put(tmp_path, "recipes/r/recipe.toml", recipe)
    assert not goals(tmp_path).by_task["sync:base:dgx1"].transient


def test_the_parts_are_what_comes_back_from_json(tmp_path: Path) -> None:
    parts = goals(tmp_path).by_task["image:eng"].key.parts
    assert msgspec.json.decode(msgspec.json.encode(parts)) == parts
    assert parts["source eng"] == "3" * 40
    assert parts["args"] == {"VERSION": "1.2", "LANES": 3, "FAST": True}


@pytest.mark.parametrize(
    ("toml", "text", "lock", "part"),
    [
        (TOML, DOCKERFILE + "RUN true\n", {}, "dockerfile"),
        (TOML, DOCKERFILE, {"eng.tree": "9" * 40}, "source eng"),
        (TOML, DOCKERFILE, {"wheel.artifact.sha256": "9" * 64}, "artifact wheel"),
        (TOML, DOCKERFILE, {"busybox.artifact.sha256": "9" * 64}, "base"),
        (TOML, DOCKERFILE, {"epoch": "1700000001"}, "epoch"),
        (TOML, DOCKERFILE, {"wheel.artifact.url": "https://example.org/eng-1.3.whl"}, "name of artifact wheel"),
        (TOML.replace("LANES = 3", 'LANES = "3"'), DOCKERFILE, {}, "args"),
        (TOML.replace('expect = "1.2"', 'expect = "1.3"'), DOCKERFILE, {}, "gates"),
        (TOML.replace("args", "network = true\nargs"), DOCKERFILE, {}, "network"),
        (TOML.replace('secrets = ["TOKEN"]', "secrets = []"), DOCKERFILE, {}, "secrets"),
    ],
)
def test_what_changes_the_key(tmp_path: Path, toml: str, text: str, lock: dict[str, str], part: str) -> None:
    old = goals(tmp_path / "a").by_task["image:eng"].key.parts
    new = goals(tmp_path / "b", toml, text, lock).by_task["image:eng"].key.parts
    assert [name for name in new if new[name] != old[name]] == [part]


@pytest.mark.parametrize(
    ("toml", "lock"),
    [
        (TOML.replace("dgx1", "dgx2"), {}),
        (TOML, {"eng.commit": "9" * 40, "eng.time": "1800000000"}),  # rebased to the same content
        (TOML, {"eng.repository": "https://mirror.example.org/eng.git"}),
        (TOML, {"unrelated.note": "x"}),
    ],
)
def test_what_does_not(tmp_path: Path, toml: str, lock: dict[str, str]) -> None:
    old = goals(tmp_path / "a").by_task["image:eng"].key
    assert goals(tmp_path / "b", toml, lock=lock).by_task["image:eng"].key == old


@pytest.mark.parametrize(
    ("toml", "text", "lock", "message", "place"),
    [
        (TOML.replace('"eng"]', '"egn"]'), DOCKERFILE, {}, "no git source `egn`", "images/eng/image.toml:5"),
        (TOML.replace('["wheel"]', '["whele"]'), DOCKERFILE, {}, "no artifact `whele`", "images/eng/image.toml:6"),
        (
            TOML.replace("fix.patch", "none.patch"),
            DOCKERFILE,
            {},
            "none.patch does not exist",
            "images/eng/image.toml:12",
        ),
        (TOML.replace("eng = [", "wheel = ["), DOCKERFILE, {}, "is not among the sources", "images/eng/image.toml:12"),
        (TOML, DOCKERFILE, {"input.images/eng/fix.patch.sha256": ""}, "does not pin images/eng/fix.patch", "toml:12"),
        (
            TOML,
            DOCKERFILE,
            {"input.images/eng/fix.patch.sha256": "9" * 64},
            "is not what the lock pins",
            "source.lock:",
        ),
        (TOML, "FROM debian:12\n", {}, "does not start from the declared base", "images/eng/Dockerfile.j2:1"),
        (TOML, DOCKERFILE + "ADD http://x/y /y\n", {}, "it downloads", "images/eng/Dockerfile.j2:5"),
        (TOML.replace("LANES", "BUILDKIT_SYNTAX"), DOCKERFILE, {}, "change how BuildKit itself builds", "image.toml:8"),
        (TOML, DOCKERFILE, {"epoch": "soon"}, "`epoch` is no time", "locks/pins.source.lock:"),
        (TOML, DOCKERFILE + "ENV TOKEN=1\n", {}, "a secret in ENV", "images/eng/Dockerfile.j2:5"),
        (TOML.replace("image:base", "image:bsae"), DOCKERFILE, {}, "no image `bsae`", "images/eng/image.toml:3"),
        (TOML.replace("image:base", "image:eng"), DOCKERFILE, {}, "in a circle", "images/eng/image.toml:3"),
        (TOML.replace("image:base", "debian:12"), DOCKERFILE, {}, "`base` does not fit", "images/eng/image.toml:3"),
        (TOML.replace("image:base", "lock:runtime.bsae.image"), DOCKERFILE, {}, "no image `runtime.bsae", "toml:3"),
        (TOML.replace('"dgx1"', '"dgx9"'), DOCKERFILE, {}, "there is no node `dgx9`", "images/eng/image.toml:4"),
        (TOML.replace("LANES = 3", "LANES = 3.5"), DOCKERFILE, {}, "`LANES` does not fit in [args]", "toml:8"),
        (TOML.replace("LANES", "TOKEN"), DOCKERFILE, {}, "`TOKEN` is a secret", "images/eng/image.toml:8"),
        (TOML + TOML[TOML.index("[[gates") :], DOCKERFILE, {}, "have the id `version`", "images/eng/image.toml:19"),
        (TOML.replace('["eng", "--version"]', "[]"), DOCKERFILE, {}, "`command`", "images/eng/image.toml:16"),
        (TOML.replace("files", "fiels"), DOCKERFILE, {}, "unknown key `fiels`", "images/eng/image.toml:7"),
        (TOML.replace("args", 'platform = "linux/arm64"\nargs'), DOCKERFILE, {}, "for another platform", "toml:3"),
    ],
)
def test_mistakes(  # noqa: PLR0917 - a table
    tmp_path: Path, toml: str, text: str, lock: dict[str, str], message: str, place: str
) -> None:
    problems = load(space(tmp_path, toml, text, lock)).problems
    assert "images/eng" in problems
    error = str(problems["images/eng"])
    assert message in error
    assert place in error


def test_what_is_built_from_something_broken_is_broken_too(tmp_path: Path) -> None:
    space(tmp_path, TOML.replace("1.2", "1.2\\u0000"))
    put(tmp_path, "images/top/image.toml", 'kind = "dockerfile"\nlock = "pins"\nbase = "image:eng"\n')
    put(tmp_path, "images/top/Dockerfile.j2", "FROM {{ base }}\n")
    problems = load(tmp_path).problems
    assert "a null byte" in str(problems["images/eng"])
    assert "the image `eng` it uses has a problem of its own" in str(problems["images/top"])


def test_a_circle_of_two(tmp_path: Path) -> None:
    space(tmp_path, TOML.replace("image:base", "image:top"))
    put(tmp_path, "images/top/image.toml", 'kind = "dockerfile"\nlock = "pins"\nbase = "image:eng"\n')
    put(tmp_path, "images/top/Dockerfile.j2", "FROM {{ base }}\n")
    problems = load(tmp_path).problems
    assert "eng -> top -> eng" in str(problems["images/eng"])
    assert "top -> eng -> top" in str(problems["images/top"])


def test_a_template_that_is_no_text_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    space(tmp_path, TOML, DOCKERFILE, {})
    template = tmp_path / "images/eng/Dockerfile.j2"
    template.write_bytes(template.read_bytes() + b"RUN \xff\n")
    error = load(tmp_path).problems["images/eng"]
    assert "images/eng/Dockerfile.j2 is not UTF-8" in str(error)
    assert f"images/eng/Dockerfile.j2:{DOCKERFILE.count(chr(10)) + 1}" in str(error)
    assert error.found == "byte 0xff"


def variants(value: Any) -> list[Any]:  # noqa: PLR0911 - one for each type
    """Other values in the place of one: each of its parts changed, taken away, put elsewhere."""
    if isinstance(value, msgspec.Struct):
        return [
            msgspec.structs.replace(value, **{name: other})
            for name in value.__struct_fields__
            for other in variants(getattr(value, name))
        ]
    if isinstance(value, dict):
        changed = [value | {name: other} for name, one in value.items() for other in variants(one)]
        renamed = [{f"{key}x" if key == name else key: one for key, one in value.items()} for name in value]
        return [*changed, *renamed, {}, dict(reversed(value.items()))]
    if isinstance(value, tuple):
        changed = [(*value[:at], other, *value[at + 1 :]) for at, one in enumerate(value) for other in variants(one)]
        return [*changed, (), (*value, *value[:1]), tuple(reversed(value))]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1]
    if isinstance(value, str):
        return [f"{value}x", f"x/{value}", ""]
    return ["x"] if value is None else [None]


def test_whatever_a_template_and_a_build_can_see_is_in_the_key(tmp_path: Path) -> None:
    """A walk over all that goes into an image: where a template or a build sees something else, the key is another."""
    toml = TOML.replace('["wheel"]', '["wheel", "other"]').replace('["run.py"]', '["run.py", "more.py"]')
    toml = toml.replace('["eng"]', '["eng", "lib"]')
    put(tmp_path, "images/eng/more.py", "more")
    lock = {"other.artifact.url": "http://x/o.bin", "other.artifact.sha256": "8" * 64}
    lock |= {f"lib.{key.partition('.')[2]}": value for key, value in LOCK.items() if key.startswith("eng.")}
    goal = goals(tmp_path, toml, lock=lock).by_task["image:eng"]
    inputs = tuple(goal.inputs)
    hashes = {item.path: item.sha256 for item in inputs}

    def seen(spec: DockerfileSpec) -> Any:
        """What a build is made from, beside the content of files."""
        patches = [path for one in spec.sources for path in one.patches]
        texts = [hashes.get(path, path) for path in (spec.dockerfile, *patches)]
        files = sorted({os.path.basename(path): hashes.get(path, path) for path in spec.files}.items())
        build = (spec.network, sorted(spec.secrets), spec.epoch, [msgspec.to_builtins(gate) for gate in spec.gates])
        contents = sorted((one.component, str(one.identity)) for one in spec.sources)
        artifacts = sorted((one.filename, one.sha256) for one in spec.artifacts.values())
        return msgspec.json.encode([values_of(spec), texts, files, build, contents, artifacts])

    counted = 0
    for changed in variants(goal.spec):
        base = changed.base  # its reference follows from its name and its key, as app.goals.builds makes it
        named = msgspec.structs.replace(base, reference=f"sparkbuild/{base.name}:{base.key[:12]}") if base else None
        spec = msgspec.structs.replace(changed, base=named)
        if len({one.component for one in changed.sources}) < len(changed.sources):
            continue  # refused: see dockerfileimage
        if base and not base.key:
            continue  # a pinned one: see test_a_pinned_base_is_named_by_its_digest
        try:
            key = key_of(spec, inputs)
        except KeyError:
            continue  # another file of the workspace: its content is another input
        if seen(spec) != seen(goal.spec):
            counted += 1
            assert key != goal.key, f"{seen(spec)}\n{seen(goal.spec)}"
    assert counted > 60


def test_tables_have_an_order_that_the_key_has_too(tmp_path: Path) -> None:
    text = DOCKERFILE + "{% for name in args %}\nRUN echo {{ name }}\n{% endfor %}"
    one = goals(tmp_path / "a", text=text).by_task["image:eng"]
    turned = TOML.replace('VERSION = "1.2", LANES = 3', 'LANES = 3, VERSION = "1.2"')
    other = goals(tmp_path / "b", turned, text).by_task["image:eng"]
    assert one.key == other.key
    assert dockerfile(one.spec, text) == dockerfile(other.spec, text)


# --- filled in -------------------------------------------------------------------------------------------------------


def test_filled_in(tmp_path: Path) -> None:
    goal = goals(tmp_path).by_task["image:eng"]
    assert dockerfile(goal.spec, DOCKERFILE) == (
        f"FROM {goal.spec.base.reference}\nCOPY sources/eng /src\nCOPY artifacts/eng-1.2.whl files/run.py /opt/\n"
        "RUN echo 1.2 3 true amd64\n"
    )


def test_a_pinned_base_is_named_by_its_digest(tmp_path: Path) -> None:
    goal = goals(tmp_path, TOML.replace("image:base", "lock:runtime.base.image")).by_task["image:eng"]
    assert goal.spec.base.reference == f"example/cuda@sha256:{'5' * 64}"
    assert goal.key.parts["base"] == goal.spec.base.reference
    assert not [need for need in goal.needs if need.uri.scheme == "image"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DOCKERFILE + "RUN {{ nothing }}\n", "a template cannot be filled in"),
        (DOCKERFILE + "COPY {{ sources.other }} /x\n", "a template cannot be filled in"),
        ("{% set other = 'debian:12' %}\nFROM {{ base }}\n{{ 'FROM ' + other }}\n", "that is not declared"),
        (DOCKERFILE + "{{ 'ADD http://x /y' }}\n", "it downloads"),
        (DOCKERFILE + "{{ 'ENV TOK' + 'EN=1' }}\n", "a secret in ENV"),
    ],
)
def test_what_a_template_hides_is_seen_when_it_is_filled_in(tmp_path: Path, text: str, message: str) -> None:
    goal = goals(tmp_path, text=text).by_task["image:eng"]
    with pytest.raises(ConfigError, match=message):
        dockerfile(goal.spec, text)


@pytest.mark.parametrize(
    ("added", "says"),
    [
        ("RUN {{ args.VERSOIN }}\n", "did you mean `args.VERSION`?"),
        ("{% include 'other' %}\n", "a template sees no other file"),
        ("{{ 'ADD http://x /y' }}\n", "it downloads"),
    ],
)
def test_what_is_wrong_with_a_template_is_told_by_plan(tmp_path: Path, added: str, says: str) -> None:
    goal = goals(tmp_path).by_task["image:eng"]
    kind = ArchiveKind(str(tmp_path))
    verdict = kind.judge(goal, {"present": False, "engine": {}}, None)
    assert kind.preflight(goal, verdict) is None
    put(tmp_path, "images/eng/Dockerfile.j2", DOCKERFILE + added)
    error = kind.preflight(goal, verdict)
    assert says in str(error)
    assert "images/eng/Dockerfile.j2" in str(error)
    assert "5" in str(getattr(error, "where", ""))


@pytest.mark.parametrize(
    ("toml", "text", "place"),
    [
        (TOML, "RUN echo swordfish\n", "images/eng/Dockerfile.j2"),
        (TOML.replace('"1.2", L', '"swordfish", L'), "", "arg VERSION"),
        (TOML.replace('expect = "1.2"', 'env = { A = "swordfish" }'), "", "gate version"),
    ],
)
def test_a_secret_is_refused_and_not_told(tmp_path: Path, toml: str, text: str, place: str) -> None:
    goal = goals(tmp_path, toml).by_task["image:eng"]
    refuse_secrets(goal.spec, "RUN true\n", {"TOKEN": "another"})
    refuse_secrets(goal.spec, text, {"TOKEN": "abc"})
    with pytest.raises(ConfigError, match=f"{place} holds the value of secret TOKEN") as caught:
        refuse_secrets(goal.spec, text, {"TOKEN": "swordfish"})
    assert "swordfish" not in str(caught.value)


# --- verdicts --------------------------------------------------------------------------------------------------------


DOWN = {"silent": "down", "next": "start it"}


@pytest.mark.parametrize(
    ("fact", "state", "text"),
    [
        ({"unreachable": "x"}, UNKNOWN, "dgx1 does not answer: x"),
        ({"present": False, "engine": {"architecture": "amd64"}}, RUN, "not built yet"),
        ({"present": False, "engine": {"architecture": "arm64"}}, UNKNOWN, "image for amd64, build node dgx1 is arm64"),
        (
            {"present": False, "engine": DOWN},
            UNKNOWN,
            "cannot be asked: down; image eng is built there\n",
        ),
        (
            {"present": False, "engine": DOWN},
            UNKNOWN,
            "`build_node` in images/eng/image.toml to a node that has docker",
        ),
        ({"present": False, "engine": {"architecture": "arm64"}}, UNKNOWN, "set `build_node` in images/eng/image.toml"),
        ({"present": False, "problem": "its layer x was removed", "engine": {}}, RUN, "its layer x was removed"),
        ({"present": True, "layers": ["a"], "bytes": 1, "gates": [{}]}, OK, ""),
    ],
)
def test_verdicts(tmp_path: Path, fact: dict[str, Any], state: str, text: str) -> None:
    goal = goals(tmp_path).by_task["image:eng"]
    kind = ArchiveKind(str(tmp_path))
    name = f"sparkbuild/eng:{goal.key.short}"
    assert kind.query(goal) == {"name": "eng", "key": goal.key.digest, "builds": True, "reference": name}
    verdict = kind.judge(goal, fact, None)
    assert verdict.state == state
    assert text in "\n".join(reason.text for reason in verdict.reasons)
    assert state != OK or verdict.told == "1 layer, 0.0 MB, 1 gate passed"


def test_what_differs_is_told(tmp_path: Path) -> None:
    goal = goals(tmp_path).by_task["image:eng"]
    before = json.loads(json.dumps(goal.key.parts)) | {"base": "old"}
    verdict = ArchiveKind(str(tmp_path)).judge(goal, {"present": False, "other": {"parts": before}, "engine": {}}, None)
    assert [reason.part for reason in verdict.reasons] == ["base"]


@pytest.mark.parametrize(
    ("fact", "same", "size", "texts"),
    [
        ({}, True, 900, ["was built before, is gone"]),
        ({}, False, None, ["base: old -> sparkbase"]),
        ({"built": True}, False, None, ["docker has it as it was built: only the export is made"]),
        ({"built": True, "bytes": 0}, False, 0, ["docker has it as it was built: only the export is made"]),
        ({"problem": "its layer x was removed", "bytes": 70}, True, 70, ["its layer x was removed"]),
        ({"problem": "its layer x was removed", "bytes": 70}, False, 70, ["its layer x was removed"]),
    ],
)
def test_no_plan_promises_bytes_that_nobody_can_know(
    tmp_path: Path, fact: dict[str, Any], same: bool, size: int | None, texts: list[str]
) -> None:
    """Of an image that is built anew, most layers may be the old ones; the size of the last one says nothing."""
    goal = goals(tmp_path).by_task["image:eng"]
    parts = goal.key.parts if same else {**goal.key.parts, "base": "old"}
    last = Made(goal.key.digest if same else "0" * 64, parts, 1.0, 1.0, 900, "run")
    verdict = ArchiveKind(str(tmp_path)).judge(goal, {"present": False, "engine": {}, **fact}, last)
    told = [reason.text.replace(str(goal.key.parts["base"])[:12], "sparkbase") for reason in verdict.reasons]
    assert (verdict.state, verdict.bytes, told) == (RUN, size, texts)


def test_an_unpublished_component_is_refused_by_name(tmp_path: Path) -> None:
    lock = {"wheel.artifact.url": "", "wheel.artifact.sha256": "", "wheel.unpublished": "nobody says where it is"}
    goal = goals(tmp_path, lock=lock).by_task["image:eng"]
    verdict = ArchiveKind(str(tmp_path)).judge(goal, {"present": False, "engine": {}}, None)
    assert verdict.state == UNKNOWN
    assert "wheel: nobody says where it is" in verdict.reasons[0].text
