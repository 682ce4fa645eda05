from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkbuild.bench import package
from sparkbuild.bench.manifest import NAME, decode
from sparkbuild.bench.observe import observe_reports
from sparkbuild.core.errors import ConfigError
from tests.bench.examples import manifest


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes/demo/reports"
    folder.mkdir(parents=True)
    return folder


def look(reports: Path, label: str = "demo") -> list[dict[str, object]]:
    return list(observe_reports(reports.parents[2], "demo", label)["reports"])


def test_nothing_has_a_final_name_before_it_is_closed(reports: Path):
    made = package.start(reports, "demo")
    (made.part / "result.json").write_text("{}")
    made.scratch.mkdir()
    (made.scratch / "junk").touch()
    assert [path.name for path in reports.iterdir()] == [made.part.name]
    assert look(reports) == []
    final = made.close(manifest())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d{6}_demo", final.name)
    assert sorted(path.name for path in final.iterdir()) == [NAME, "result.json"]
    assert list(decode((final / NAME).read_bytes()).files) == ["result.json"]
    (found,) = look(reports)
    assert found["complete"] is True
    assert found["path"] == f"recipes/demo/reports/{final.name}"


def test_an_incomplete_one_says_so_in_its_name(reports: Path):
    final = package.start(reports, "demo").close(manifest(complete=False, incomplete_because=("why",)))
    assert final.name.endswith("_demo_incomplete")
    (found,) = look(reports)
    assert (found["complete"], found["incomplete_because"]) == (False, ["why"])


def test_two_in_one_second_do_not_share_a_folder(reports: Path):
    first, second = package.start(reports, "demo"), package.start(reports, "demo")
    assert first.close(manifest()) != second.close(manifest())
    assert len(look(reports)) == 2


def test_a_label_that_would_look_incomplete(reports: Path):
    with pytest.raises(ConfigError, match="cannot end in _incomplete"):
        package.start(reports, "x_incomplete")


def test_labels_are_told_apart(reports: Path):
    package.start(reports, "a").close(manifest())
    package.start(reports, "b_a").close(manifest(complete=False))
    assert len(look(reports, "a")) == 1
    assert len(look(reports, "b_a")) == 1
    assert look(reports, "b") == []


def test_sweeping_leaves_alone_what_is_being_filled(reports: Path):
    made = package.start(reports, "demo")
    assert package.sweep(reports) == []
    made.close(manifest())


@pytest.mark.parametrize("complete", [False, True])
def test_what_a_killed_run_left_is_incomplete(reports: Path, complete: bool):
    made = package.start(reports, "demo")
    because = () if complete else ("the run was killed before its end",)
    package.write_manifest(made.part, manifest(complete=complete, incomplete_because=because))
    made.scratch.mkdir()
    made._lock.release()  # what the kernel does for a killed process
    (final,) = package.sweep(reports)
    assert final.name.endswith("_incomplete")
    assert not (final / package.SCRATCH).exists()
    (found,) = look(reports)
    assert found["complete"] is False
    assert "the run was killed" in str(found["incomplete_because"])


def test_a_run_killed_in_its_first_moments(reports: Path):
    package.start(reports, "demo")._lock.release()
    package.sweep(reports)
    (found,) = look(reports)
    assert found["broken"] == "manifest.json: No such file or directory"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda final: (final / NAME).write_text("{"), "manifest.json: "),
        (lambda final: (final / NAME).write_text("{}"), "manifest.json: Object missing required field `format`"),
        (lambda final: (final / NAME).unlink(), "manifest.json: No such file or directory"),
        (lambda final: (final / "r.json").unlink(), "no longer in the package: r.json"),
        (lambda final: final.rename(f"{final}_incomplete"), "the folder is marked as incomplete"),
        (
            lambda final: (final / NAME).write_text((final / NAME).read_text().replace("package/v1", "package/v9")),
            "manifest.json: format 'sparkbuild-run-package/v9', wanted 'sparkbuild-run-package/v1'",
        ),
    ],
)
def test_a_damaged_package_is_never_complete(reports: Path, damage: object, told: str):
    made = package.start(reports, "demo")
    (made.part / "r.json").write_text("{}")
    damage(made.close(manifest()))  # type: ignore[operator]
    (found,) = look(reports)
    assert not found.get("complete")
    assert told in str(found.get("broken") or found.get("incomplete_because"))


def test_no_reports_yet(tmp_path: Path):
    assert observe_reports(tmp_path, "demo", "demo") == {"reports": []}


def test_the_recipe_is_copied(tmp_path: Path, reports: Path):
    recipe = tmp_path / "recipes/demo"
    (recipe / "mods").mkdir()
    for name in ("recipe.toml", "chat.jinja", "mods/a.py"):
        (recipe / name).write_text(name)
    made = package.start(reports, "demo")
    package.copy_recipe(made.part, recipe, ["chat.jinja", "mods/a.py", "recipe.toml"])
    final = made.close(manifest())
    assert (final / "recipe/mods/a.py").read_text() == "mods/a.py"
    assert sorted(decode((final / NAME).read_bytes()).files) == [
        "recipe/chat.jinja",
        "recipe/mods/a.py",
        "recipe/recipe.toml",
    ]
