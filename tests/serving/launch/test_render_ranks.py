"""Ranks and containers: the argv of each rank, variables that facts give, mounts, and secrets that are files."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch.render import MASK, Bind, launch
from sparkbuild.workspace.shapes.schema import Mount
from tests.serving import lanes
from tests.serving.lanes import WEIGHTS, launched, rank, spec

SECRET = "hf_0123456789abcdef"
RECIPE: dict[str, Any] = {
    "command": ("{{ image.python }}", "{{ image.files }}/ranks.py"),
    "args": ("--rank={{ rank }}/{{ world_size }}", "--head={{ head }}", "--fabric={{ fabric.address }}"),
    "head_args": ("--", "serve", "{{ host }}:{{ port }}"),
    "worker_args": ("--headless", "{{ node }}"),
}


def test_the_argv_of_each_rank() -> None:
    both = ("/opt/venv/bin/python", "/opt/files/ranks.py")
    assert launched(0, **RECIPE).argv == (
        *both,
        *("--rank=0/2", "--head=10.0.0.1", "--fabric=10.0.0.1", "--", "serve", "10.0.0.1:8000"),
    )
    assert launched(1, **RECIPE).argv == (
        *both,
        *("--rank=1/2", "--head=10.0.0.1", "--fabric=10.0.0.2", "--headless", "dgx2"),
    )


def test_one_node_is_its_own_head() -> None:
    made = launch(spec(**RECIPE), rank(world_size=1), {})
    assert made.argv[2:] == ("--rank=0/1", "--head=127.0.0.1", "--fabric=127.0.0.1", "--", "serve", "127.0.0.1:8000")
    assert made.env == {}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("", ()),
        ("/srv/models/qwen3 8b", ("/srv/models/qwen3 8b",)),
        ("{{ staged.weights }}", (WEIGHTS,)),
        ("{{ '' }}", ()),
    ],
)
def test_the_model(model: str, words: tuple[str, ...]) -> None:
    made = launched(model=model, args=("--tp", "2"), head_args=("-x",))
    assert made.argv == ("engine", "serve", *words, "--tp", "2", "-x")


def test_the_fabric_in_templates() -> None:
    args = ("{{ fabric.interface }}", "{{ fabric.hcas }}", "[{{ fabric.gid_index }}]")
    assert launched(0, args=args).argv[2:] == ("fast0", "rocep1s0f0,roceP2p1s0f0", "[3]")
    assert launched(1, args=args).argv[2:] == ("fast1", "", "[]")


NAMES = "fabric.address, fabric.gid_index, fabric.hcas, fabric.interface"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{{ fabric.adress }}", NAMES),
        ("{{ head.x }}", NAMES),
        ("{{ ranks }}", NAMES),
        ("{% if", "for braces as such"),
        ("{{ 1 / 0 }}", "an expression that has a value"),
    ],
)
@pytest.mark.parametrize("field", ["args", "head_args", "model", "env", "source", "target"])
def test_templates_that_cannot_be_filled(field: str, text: str, wanted: str) -> None:
    changes: dict[str, Any] = {"model": text, "env": {"A": text}}
    changes |= {"source": (Mount(text, "/x"),), "target": (Mount("/x", text),)}
    value = changes.get(field, (text,))
    with pytest.raises(ConfigError, match="cannot be filled in") as raised:
        launched(**{"mounts" if field in {"source", "target"} else field: value})
    assert raised.value.where == "recipes/demo/recipe.toml"
    assert wanted in raised.value.wanted


def test_arguments_of_the_other_rank_are_not_filled_in() -> None:
    launched(0, worker_args=("{{ nothing }}",))
    launched(1, head_args=("{{ nothing }}",))


ODD = (
    "$HOME ${HOME} $(id) `id` $$",
    'it\'s "quoted" \\ \\n',
    "one\ntwo\n\nthree\n",
    " spaces \t",
    "",
    "ünïcödé ✓",
    '{"a": {"b": [1, "}"]}}',
    "%s %(x)s {0}",
    "a=b=c",
)


@pytest.mark.parametrize("runtime", ["process", "docker"])
@pytest.mark.parametrize("value", ODD)
def test_values_arrive_unchanged(value: str, runtime: str) -> None:
    made = launched(env={"ODD": value}, args=(value,), runtime=runtime, network="none")
    assert made.env["ODD"] == value
    assert made.argv[2:] == (value,)


def test_what_facts_give_and_where_it_comes_from() -> None:
    made = launched(0)
    assert made.env["NCCL_IB_GID_INDEX"] == "3"
    assert made.env["NCCL_SOCKET_IFNAME"] == "fast0"
    assert made.origins.keys() == made.env.keys()
    assert "10.0.0.1" in made.origins["NCCL_IB_GID_INDEX"]
    other = launched(1)
    assert (other.env["NCCL_IB_DISABLE"], other.env["NCCL_SOCKET_IFNAME"]) == ("1", "fast1")
    assert "NCCL_IB_GID_INDEX" not in other.env


def test_a_variable_of_the_recipe_goes_before_a_derived_one() -> None:
    made = launched(0, env={"NCCL_IB_GID_INDEX": "5", "OWN": "x", "NCCL_IB_HCA": ""})
    assert (made.env["NCCL_IB_GID_INDEX"], made.env["NCCL_IB_HCA"]) == ("5", "")
    assert made.origins["NCCL_IB_GID_INDEX"] == "serve.env, instead of 3"
    assert made.origins["NCCL_IB_HCA"] == "serve.env, instead of rocep1s0f0,roceP2p1s0f0"
    assert "OWN" not in made.origins, "what the recipe set needs no explanation"


def test_no_network_variables_wanted() -> None:
    assert launched(0, network="none").env == {}
    assert launched(0, network="none").origins == {}


def test_secrets_reach_a_container_as_files() -> None:
    made = launched(0, {"HF_TOKEN": SECRET}, network="none", env={"A": "1"})
    assert made.env == {"A": "1", "HF_TOKEN_FILE": "/run/secrets/HF_TOKEN"}
    assert made.secrets == {"HF_TOKEN": SECRET}
    assert made.origins == {"HF_TOKEN_FILE": "the secret HF_TOKEN, as a file"}
    assert SECRET not in f"{made.argv}{made.env}{made.mounts}{made.origins}"
    assert made.shown_env() == made.env


def test_where_a_secret_is_may_be_said_by_the_recipe() -> None:
    made = launched(0, {"HF_TOKEN": SECRET}, network="none", env={"HF_TOKEN_FILE": "/elsewhere"})
    assert made.env == {"HF_TOKEN_FILE": "/elsewhere"}


def test_secrets_reach_a_process_as_variables_on_every_rank() -> None:
    for number in (0, 1):
        made = launched(number, {"HF_TOKEN": SECRET}, runtime="process", network="none")
        assert made.env == {"HF_TOKEN": SECRET}
        assert made.shown_env() == {"HF_TOKEN": MASK}
        assert made.mounts == ()


LEAKS: dict[str, dict[str, Any]] = {
    "args": {"args": (f"--token={SECRET}",)},
    "head_args": {"head_args": (SECRET,)},
    "model": {"model": f"x/{SECRET}"},
    "env": {"env": {"A": f"Bearer {SECRET}"}},
    "source": {"mounts": (Mount(f"/srv/{SECRET}", "/x"),)},
    "target": {"mounts": (Mount("/srv", f"/{SECRET}"),)},
}


@pytest.mark.parametrize("place", LEAKS)
def test_a_secret_that_would_be_seen(place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        launched(0, {"HF_TOKEN": SECRET}, **LEAKS[place])
    assert "secret HF_TOKEN" in raised.value.what
    assert SECRET not in str(raised.value)


def binds(*mounts: Mount, wanted: LaneSpec | None = None, files: str = "") -> tuple[Bind, ...]:
    return launch(wanted or spec(mounts=mounts), rank(files=files), {}).mounts


STAGED = Bind(WEIGHTS, WEIGHTS, read_only=True)


def test_what_is_staged_and_the_recipe_s_files_have_one_path_everywhere() -> None:
    assert binds() == (STAGED,)
    files = "/srv/store/lanes/demo/files-0123"
    assert binds(files=files) == (STAGED, Bind(files, files, read_only=True))
    made = launched(files=files, args=("{{ recipe.dir }}/chat.jinja", "{{ staged.weights }}"))
    assert made.argv[2:] == (f"{files}/chat.jinja", WEIGHTS)
    assert launched(runtime="process").mounts == ()


# mount, what docker is asked for
MOUNTS: dict[str, tuple[Mount, Bind]] = {
    "plain": (Mount("/srv/models", "/models"), Bind("/srv/models", "/models", read_only=True)),
    "writable": (Mount("/srv/c", "/c", read_only=False), Bind("/srv/c", "/c", read_only=False)),
    "spaces and quotes": (
        Mount('/srv/my models/it\'s "x"', "/a b/$x:y"),
        Bind('/srv/my models/it\'s "x"', "/a b/$x:y", read_only=True),
    ),
    "a template": (
        Mount("/srv/{{ node }}/{{ rank }}", "/data/{{ recipe.name }}"),
        Bind("/srv/dgx1/0", "/data/demo", read_only=True),
    ),
    "a slash at the end": (Mount("/srv/models/", "/models/"), Bind("/srv/models", "/models", read_only=True)),
    "dots": (Mount("/srv/./x/../models", "/models"), Bind("/srv/models", "/models", read_only=True)),
}


@pytest.mark.parametrize("name", MOUNTS)
def test_mounts(name: str) -> None:
    mount, expected = MOUNTS[name]
    assert binds(mount) == (STAGED, expected)


def test_the_same_mount_twice_is_one() -> None:
    assert binds(Mount("/srv/a", "/a"), Mount("/srv/a/", "/a"), Mount(WEIGHTS, WEIGHTS)) == (
        STAGED,
        Bind("/srv/a", "/a", read_only=True),
    )


def test_one_source_at_two_places() -> None:
    assert len(binds(Mount("/srv/a", "/a"), Mount("/srv/a", "/b"))) == 3


# mounts, what stands in the error
REFUSED: dict[str, tuple[tuple[Mount, ...], list[str]]] = {
    "relative source": ((Mount("models", "/x"),), ["the source of a mount is no absolute path", "'models'"]),
    "relative target": ((Mount("/x", "./models"),), ["the target of a mount is no absolute path", "'./models'"]),
    "home": ((Mount("~/models", "/x"),), ["the source of a mount is no absolute path"]),
    "empty when filled in": ((Mount("{{ '' }}", "/x"),), ["the source of a mount is no absolute path", "''"]),
    "one target": (
        (Mount("/srv/a", "/x"), Mount("/srv/b", "/x")),
        ["two mounts have one target", "/srv/a (read only) and /srv/b (read only) at /x"],
    ),
    "one target, written otherwise": ((Mount("/srv/a", "/x"), Mount("/srv/b", "/y/../x/")), ["one target", "at /x"]),
    "the target of what is staged": ((Mount("/srv/a", WEIGHTS),), ["one target", WEIGHTS]),
    "what is staged, writable": ((Mount(WEIGHTS, WEIGHTS, read_only=False),), ["one target", "(writable)"]),
    "once writable, once not": (
        (Mount("/srv/a", "/a"), Mount("/srv/a", "/a", read_only=False)),
        ["one target", "/srv/a (read only) and /srv/a (writable)"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mounts_refused(name: str) -> None:
    mounts, texts = REFUSED[name]
    with pytest.raises(ConfigError) as raised:
        binds(*mounts)
    assert raised.value.where == "recipes/demo/recipe.toml"
    for text in texts:
        assert text in str(raised.value)


@pytest.mark.parametrize("target", ["/run/secrets", "/run/secrets/", "/run/secrets/HF_TOKEN"])
def test_a_mount_over_the_secrets(target: str) -> None:
    mount = Mount("/srv/a", target)
    with pytest.raises(ConfigError, match="/run/secrets"):
        lanes.launched(0, {"HF_TOKEN": SECRET}, mounts=(mount,))
    lanes.launched(0, mounts=(mount,))
