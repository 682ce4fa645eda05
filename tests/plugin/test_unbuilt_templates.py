"""The template of an image is looked at whatever its build node says: its mistakes are of the workspace alone."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.workspace_tool import Tool, bare

FAULTS = {
    "{{ nosuch }}": "there is no `nosuch`",
    "{% if %}{% endif %}": "Expected an expression",
    "{{ base.__class__ }}": "a text has no `__class__`",
    "{{ 'ADD' }} http://example.org/x /x": "it downloads",
}


@pytest.fixture(params=["no docker", "no answer"])
def doit(request: pytest.FixtureRequest, tmp_path: Path) -> Tool:
    tool = bare(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = {
        "no docker": f'connection = "local"\ndocker = "{tmp_path}/none.sock"\n',
        "no answer": f'connection = "ssh"\naddress = "127.0.0.1"\nport = {port}\nstore = "/srv/s"\n',
    }[request.param]
    (tmp_path / "config.toml").write_text(
        f'[nodes.local]\nconnection = "local"\n\n[nodes.dgx1]\n{where}\n[clusters.one]\nnodes = ["dgx1"]\n'
    )
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/none.source.lock").write_text("format=local-inference-source-lock/v1\nrelease.name=none\n")
    folder = tmp_path / "images/eng"
    folder.mkdir(parents=True)
    (folder / "image.toml").write_text('kind = "dockerfile"\nlock = "none"\nbase = "scratch"\nbuild_node = "dgx1"\n')
    recipe = tmp_path / "recipes/r/recipe.toml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(
        'cluster = "one"\nimage = "eng"\nmodel_id = "m"\n[serve]\nruntime = "docker"\ncommand = ["x"]\nport = 8000\n'
    )
    return tool


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_of_a_template_is_told(doit: Tool, fault: str) -> None:
    (doit.root / "images/eng/Dockerfile.j2").write_text(f"FROM scratch\n{fault}\n")
    for words in (["plan", "serve:r"], ["why", "image:eng"]):
        done = doit.ok(*words)
        assert FAULTS[fault] in done.out, (words, done)
        assert "images/eng/Dockerfile.j2" in done.out
        assert "make it so" not in done.out
    goals = json.loads(doit.ok("plan", "--json", "image:eng").out)["goals"]
    assert [FAULTS[fault] in goal["refused"]["found"] + goal["refused"]["what"] for goal in goals] == [True]
    assert FAULTS[fault] in doit.fails("image:eng").err


def test_a_template_without_one_is_not_mentioned(doit: Tool) -> None:
    (doit.root / "images/eng/Dockerfile.j2").write_text("FROM scratch\n")
    assert "Dockerfile.j2" not in doit.ok("plan", "serve:r").out
