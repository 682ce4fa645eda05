"""An export killed at every call that changes the disk: never whole by its manifest when it is not; a rerun ends it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

from sparkbuild.agent.export import make
from sparkbuild.agent.ledger import ledger
from sparkbuild.agent.stage import verify
from tests.agent.driver import Silent, entry, key
from tests.agent.exports import Site
from tests.agent.stage.test_stage_killed import KILL

SHIM = KILL.replace("unlink symlink", "unlink link symlink open")


def killed(site: Site, before: dict[str, Any] | None, what: dict[str, Any], folders: list[Path]) -> int:
    """Kill before step 1, 2, ...; each time from the same beginning, an export of `before`."""
    assert "link symlink open" in SHIM
    for nth in range(1, 300):
        shutil.rmtree(site.dst, ignore_errors=True)
        if before is not None:
            make.run(site.request(before), Silent())
        answer = site.export(what, shim=SHIM.format(nth=nth))
        if answer.code == 0:
            return nth - 1
        assert answer.code == -signal.SIGKILL, (answer.events, answer.stderr)
        fact = site.look(what)
        if fact["present"] and before is None:
            assert fact["problems"] == []
        make.run(site.request(what), Silent())
        done = site.look(what)
        assert (done["present"], done["problems"]) == (True, [])
        assert sorted(os.listdir(site.dst / ".sparkbuild")) == ["lock", "mounts.json"]
        assert not [path for path in site.dst.rglob("*") if path.is_dir() and not any(path.iterdir())], "empty folders"
        for folder in folders:
            query = {"store": "/", "dst": str(folder), "key": "", "linked": True}
            assert verify.observe(query)["problems"] == []
            made = ledger.read(folder.as_posix())
            assert made is not None
            assert all((folder / record.name).stat().st_size == record.size for record in made.files)
    raise AssertionError("it never survived")


def test_a_tree(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.mirrored("page15/*")
    assert killed(site, None, site.tree("page15/*"), [site.mirror]) > 30


def test_a_tree_that_becomes_another(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.mirrored("page15/*")
    assert killed(site, site.tree("page15/*"), site.tree(subtree="draft"), [site.mirror]) > 30


def test_a_tree_that_becomes_composed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.mirrored("page15/*")
    (tmp_path / "local.json").write_text("{}")
    names = ("config.json", "engram-local.json")
    over = site.over("rows", [entry(name, tmp_path / "local.json") for name in names])
    assert killed(site, site.tree("page15/*"), site.composed(over), [site.mirror, over]) > 30
    assert key("e") == site.look()["key"]
