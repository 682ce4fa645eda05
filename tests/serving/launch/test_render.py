"""From a recipe to the exact argv and environment: templates, and secrets that show up nowhere."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.secrets import parse_secrets, read_secrets
from sparkbuild.core.templates.errors import TemplateError
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch.fabric import alone
from sparkbuild.serving.launch.render import MASK, Launch, Rank, launch

WHERE = "recipes/demo/recipe.toml"
SECRET = "hf_0123456789abcdef"
RANK = Rank(
    node="dgx1",
    rank=0,
    world_size=1,
    store="/srv/store",
    host="127.0.0.1",
    head="127.0.0.1",
    fabric=alone("dgx1"),
    files="/srv/space/recipes/demo",
)


def spec(**changes: Any) -> LaneSpec:
    fields: dict[str, Any] = {
        "recipe": "demo",
        "folder": "recipes/demo",
        "command": (
            "{{ image.python }}",
            "{{ image.files }}/serve.py",
            "--model={{ staged.weights }}/model.gguf",
            "--chat-template={{ recipe.dir }}/chat.jinja",
            "--alias={{ model_id }}",
            "--host={{ host }}",
            "--port={{ port }}",
        ),
        "env": {"THREADS": "1", "WHERE": "{{ node }}:{{ rank }}/{{ world_size }}"},
        "secrets": (),
        "port": 8000,
        "model_id": "smollm2",
        "ready_timeout": 60.0,
        "stop_grace": 5.0,
        "protect": False,
        "image": "images/llamacpp/0123",
        "staged": {"weights": "staged/demo/weights", "elsewhere": "/srv/data"},
        "lock": "demo@1234",
        "gates": (),
    }
    return LaneSpec(**{**fields, **changes})


def filled(secrets: dict[str, str] | None = None, **changes: Any) -> Launch:
    wanted = spec(**changes)
    return launch(wanted, RANK, secrets or {})


def test_argv_and_environment() -> None:
    made = filled()
    assert made.argv == (
        "/srv/store/images/llamacpp/0123/bin/python",
        "/srv/store/images/llamacpp/0123/files/serve.py",
        "--model=/srv/store/staged/demo/weights/model.gguf",
        "--chat-template=/srv/space/recipes/demo/chat.jinja",
        "--alias=smollm2",
        "--host=127.0.0.1",
        "--port=8000",
    )
    assert made.env == {"THREADS": "1", "WHERE": "dgx1:0/1"}


def test_a_folder_elsewhere_stays_where_it_is() -> None:
    assert filled(command=("{{ staged.elsewhere }}",)).argv == ("/srv/data",)


def test_an_argument_with_spaces_and_quotes_stays_one_argument() -> None:
    assert filled(command=('{"a": "$HOME; {{ port }} \'x\'"}',)).argv == ('{"a": "$HOME; 8000 \'x\'"}',)


@pytest.mark.parametrize("changes", [{"command": ("{{ staged.weight }}",)}, {"env": {"A": "{{ staged.weight }}"}}])
def test_an_unknown_name(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        filled(**changes)
    assert raised.value.where == WHERE
    assert "there is no `weight` in `staged`" in raised.value.found
    assert "staged.elsewhere, staged.weights" in raised.value.wanted
    assert "image.files, image.python" in raised.value.wanted


@pytest.mark.parametrize(
    ("changes", "what", "found"),
    [
        ({"command": ("",)}, "the first word of serve.command", "nothing"),
        ({"command": ("{{ fabric.gid_index }}", "x")}, "the first word of serve.command", "nothing"),
        ({"command": ("x", "y" * 131_072)}, f"the argument {'y' * 40!r}", "131072 bytes"),
        ({"args": ("é" * 70_000,)}, f"the argument {'é' * 40!r}", "140000 bytes"),
        ({"env": {"LONG": "v" * 131_067}}, "variable LONG", "131072 bytes"),
        ({"args": ("a\0b",)}, "the argument 'a\\x00b'", "the character NUL in it"),
    ],
)
def test_what_no_program_can_be_started_with(changes: dict[str, Any], what: str, found: str) -> None:
    """A launch would stop the lane that serves, and then fail."""
    with pytest.raises(TemplateError) as caught:
        filled(**changes)
    assert (caught.value.what, caught.value.found) == (f"{what} cannot be handed to a program", found)


def test_the_longest_that_a_program_can_be_started_with() -> None:
    made = filled(command=("/bin/true", "y" * 131_071, ""), env={"LONG": "v" * 131_066})
    subprocess.run(made.argv, env=made.env, check=True)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run((*made.argv, "y" * 131_072), env=made.env, check=False)


def test_secrets_reach_the_process_and_nothing_that_is_shown() -> None:
    made = filled({"HF_TOKEN": SECRET})
    assert made.env["HF_TOKEN"] == SECRET
    assert made.shown_env() == {"THREADS": "1", "WHERE": "dgx1:0/1", "HF_TOKEN": MASK}
    assert SECRET not in repr(made.shown_env())
    assert SECRET not in " ".join(made.argv)


def test_a_secret_is_no_template() -> None:
    assert filled({"HF_TOKEN": "{{ port }}"}).env["HF_TOKEN"] == "{{ port }}"


def test_a_template_cannot_name_a_secret() -> None:
    with pytest.raises(ConfigError, match="cannot be filled in"):
        filled({"HF_TOKEN": SECRET}, command=("--token={{ HF_TOKEN }}",))


def test_a_secret_written_into_the_command_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as raised:
        filled({"EMPTY": "", "HF_TOKEN": SECRET}, command=("engine", f"--token={SECRET}"))
    assert "secret HF_TOKEN" in str(raised.value)
    assert raised.value.where == WHERE
    assert SECRET not in str(raised.value)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HF_TOKEN", "API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_no_secrets_wanted_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "secrets.env").mkdir()
    assert read_secrets(str(tmp_path), (), WHERE) == {}


def test_secrets_from_the_environment_and_the_file(tmp_path: Path, clean: pytest.MonkeyPatch) -> None:
    text = f"# HF_TOKEN=commented\n\n HF_TOKEN = x\nAPI_KEY=  a=b c#d\nOTHER=1\nnonsense\nHF_TOKEN={SECRET}\n"
    (tmp_path / "secrets.env").write_text(text)
    assert read_secrets(str(tmp_path), ("HF_TOKEN", "API_KEY"), WHERE) == {"HF_TOKEN": SECRET, "API_KEY": "a=b c#d"}
    clean.setenv("API_KEY", "from the shell")
    assert read_secrets(str(tmp_path), ("API_KEY",), WHERE) == {"API_KEY": "from the shell"}


@pytest.mark.parametrize("text", [None, "", "HF_TOKEN=\n", "# HF_TOKEN=x\n", "HF_TOKE=x\n"])
def test_a_secret_without_a_value(tmp_path: Path, clean: pytest.MonkeyPatch, text: str | None) -> None:
    clean.setenv("HF_TOKEN", "")
    if text is not None:
        (tmp_path / "secrets.env").write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_secrets(str(tmp_path), ("HF_TOKEN",), WHERE)
    assert raised.value.what == "secret HF_TOKEN has no value"
    assert raised.value.where == WHERE
    assert "secrets.env" in raised.value.wanted


def test_an_empty_variable_does_not_hide_the_file(tmp_path: Path, clean: pytest.MonkeyPatch) -> None:
    clean.setenv("HF_TOKEN", "")
    (tmp_path / "secrets.env").write_text(f"HF_TOKEN={SECRET}\n")
    assert read_secrets(str(tmp_path), ("HF_TOKEN",), WHERE) == {"HF_TOKEN": SECRET}


def test_all_secrets_without_a_value_are_named(tmp_path: Path, clean: pytest.MonkeyPatch) -> None:
    clean.setenv("API_KEY", "x")
    with pytest.raises(ConfigError) as raised:
        read_secrets(str(tmp_path), ("HF_TOKEN", "API_KEY", "OTHER"), WHERE)
    assert raised.value.what == "the secrets HF_TOKEN, OTHER have no value"
    assert raised.value.wanted.endswith("secrets.env beside config.toml:\nHF_TOKEN=...\nOTHER=...")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\nB=2\n", {"A": "1", "B": "2"}),
        ("  A =  1  \n", {"A": "1"}),
        ("A='1'\n", {"A": "'1'"}),
        ('A="x y" # z\n', {"A": '"x y" # z'}),
        ("A=1=2\n", {"A": "1=2"}),
        ("#A=1\n  # B=2\n\nC\n", {}),
        ("A=1\nA=2\n", {"A": "2"}),
        ("export A=1\n", {"export A": "1"}),
        ("A=\n", {"A": ""}),
        ("A=a\u2028b", {"A": "a\u2028b"}),
    ],
)
def test_what_a_line_of_secrets_means(text: str, found: dict[str, str]) -> None:
    assert parse_secrets(text) == found


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True), (0o644, True), (0o604, True)])
def test_secrets_that_others_can_read_are_told_once(
    tmp_path: Path, clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: int, warned: bool
) -> None:
    clean.delenv("HF_TOKEN", raising=False)
    path = tmp_path / "secrets.env"
    path.write_text(f"HF_TOKEN={SECRET}\n")
    path.chmod(mode)
    for _ in range(2):
        read_secrets(str(tmp_path), ("HF_TOKEN",), WHERE)
    said = capsys.readouterr().err
    assert said.count("can be read by other users of this machine: chmod 600") == warned
    assert SECRET not in said
