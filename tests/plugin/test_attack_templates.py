"""Somebody else's recipe: whatever its templates say, no command runs code of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.demo import new_demo

COMMANDS = (
    ("list",),
    ("list", "-s"),
    ("plan",),
    ("plan", "serve:demo"),
    ("plan", "--full", "serve:demo"),
    ("why", "serve:demo"),
    ("status",),
    ("serve:demo",),
)
FIELDS = {  # what is replaced in the demo's recipe
    "command": ('"{{ port }}",', '"{attack}",'),
    "args": ("port = ", 'args = ["{attack}"]\nport = '),
    "head_args": ("port = ", 'head_args = ["{attack}"]\nport = '),
    "model": ("port = ", 'model = "{attack}"\nport = '),
    "env": ("# The wheel", '[serve.env]\nA = "{attack}"\n# The wheel'),
}


def attack(mark: Path) -> str:
    """A template that makes a file, if it is filled in by a jinja2 without a sandbox."""
    return f"{{{{ cycler.__init__.__globals__.os.popen('touch {mark}').read() }}}}"


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_a_recipe(field: str, tmp_path: Path) -> None:
    demo, mark = new_demo(tmp_path / "w"), tmp_path / "mark"
    old, new = FIELDS[field]
    demo.edit(old, new.replace("{attack}", attack(mark)))
    line = next(n for n, text in enumerate(demo.read().splitlines(), 1) if "cycler" in text)
    for command in COMMANDS:
        done = demo(*command)
        assert not mark.exists(), command
        assert "Traceback" not in done.text, done
    assert done.code, done
    assert "a template cannot be filled in" in done.text
    assert f"recipes/demo/recipe.toml:{line}" in done.text
    assert not (demo.store / "images").exists(), "nothing is made for it"


def test_the_tokenizer_of_a_bench_is_looked_at_before_the_lane_is_served(tmp_path: Path) -> None:
    demo, mark = new_demo(tmp_path / "w"), tmp_path / "mark"
    demo.edit('tokenizer = "{{ staged.weights }}', f'tokenizer = "{attack(mark)}')
    for command in (*COMMANDS[:-1], ("plan", "bench:demo"), ("bench:demo",)):
        done = demo(*command)
        assert not mark.exists(), command
    assert done.code, done
    assert "recipes/demo/recipe.toml:" in done.text
    assert not (demo.store / "images").exists(), "nothing is made for it"


def test_a_path_of_a_mount(tmp_path: Path) -> None:
    demo, mark = new_demo(tmp_path / "w"), tmp_path / "mark"
    demo.edit('image = "llamacpp"', f'image = "example.org/engine@sha256:{"0" * 64}"')
    mounts = "".join(
        f'[[serve.mounts]]\nsource = "{one}"\ntarget = "{other}"\n'
        for one, other in ((attack(mark), "/a"), ("/b", attack(mark)))
    )
    demo.edit("port = ", 'runtime = "docker"\nport = ')
    demo.edit("# The wheel", f"{mounts}# The wheel")
    demo.edit("{{ image.python }}", "python3")
    demo.edit("{{ image.files }}/serve.py", "serve.py")
    for command in COMMANDS:
        done = demo(*command)
        assert not mark.exists(), command
        assert "Traceback" not in done.text, done
    assert done.code, done


DOCKERFILES = {
    "in a value": "FROM {{ base }}\nRUN {attack}\n",
    "in a loop": "FROM {{ base }}\n{% for a in [1] %}{attack}{% endfor %}\n",
    "in a condition": "FROM {{ base }}\n{% if {inner} %}{% endif %}\n",
}


@pytest.mark.parametrize("place", DOCKERFILES)
def test_a_dockerfile(place: str, tmp_path: Path) -> None:
    demo, mark = new_demo(tmp_path / "w"), tmp_path / "mark"
    folder = demo.root / "images/evil"
    folder.mkdir(parents=True)
    whole = attack(mark)
    text = DOCKERFILES[place].replace("{attack}", whole).replace("{inner}", whole.strip("{} "))
    (folder / "Dockerfile.j2").write_text(text)
    (folder / "image.toml").write_text('kind = "dockerfile"\nlock = "demo"\nbase = "scratch"\nbuild_node = "local"\n')
    (folder / "Dockerfile.j2").write_text(text.replace("{{ base }}", "scratch"))
    for command in (("list",), ("plan",), ("plan", "image:evil"), ("why", "image:evil"), ("status",), ("image:evil",)):
        done = demo(*command)
        assert not mark.exists(), command
        assert "Traceback" not in done.text, done
    assert done.code, done
