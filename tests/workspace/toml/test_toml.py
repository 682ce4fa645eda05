"""What a wrong TOML file is told: the line, the table that swallowed a key, and where the key belongs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.shapes.schema import Config, RecipeFile
from sparkbuild.workspace.toml import tomlfile
from tests.workspace.helpers import RECIPE, put

NAME = "recipes/demo/recipe.toml"
TOP = 'cluster = "local"\nimage = "eng"\nmodel_id = "m"\n'  # lines 1-3
SERVE = '[serve]\ncommand = ["engine"]\nport = 8000\n'  # lines 4-6
STAGING = '[[staging]]\nid = "hub"\nkind = "hub-mirror"\nrepos = ["org/one"]\n'
EXPORT = '[[staging.exports]]\nid = "tree"\nkind = "tree"\ntarget = "/model"\n'
GATE = '[[gates]]\nid = "a"\nkind = "smoke"\nprompt = "p"\nexpect = "e"\n'


def refused(root: Path, text: str) -> ConfigError:
    path = put(root, NAME, text)
    with pytest.raises(ConfigError) as caught:
        tomlfile.read(path, RecipeFile, root)
    return caught.value


def test_a_good_file(tmp_path: Path) -> None:
    assert tomlfile.read(put(tmp_path, NAME, RECIPE), RecipeFile, tmp_path).serve.port == 8000


@pytest.mark.parametrize(
    ("text", "line", "header", "above"),
    [
        (TOP + SERVE + GATE + "protect = true\n", 12, "[[gates]] on line 7", "line 4, the first header [serve]"),
        (TOP + SERVE + "protect = true\n", 7, "[serve] on line 4", "line 4, the first header [serve]"),
        (TOP + SERVE + "[serve.env]\nA = '1'\nprotect = true\n", 9, "[serve.env] on line 7", "line 4, the"),
        (TOP + SERVE + "[serve.env]\nA = '1'\nfiles = ['x']\n", 9, "[serve.env] on line 7", "line 4, the"),
        (TOP + SERVE + GATE + GATE + "# c\nfiles = [\n  'x',\n]\n", 18, "[[gates]] on line 12", "line 4, the"),
        (TOP + SERVE + "protect.x = 1\n", 7, "[serve] on line 4", "line 4, the"),
    ],
)
def test_the_section_trap(tmp_path: Path, text: str, line: int, header: str, above: str) -> None:
    error = refused(tmp_path, text)
    assert "stands in the wrong table" in error.what
    assert error.where == f"{NAME}:{line}"
    assert error.found.startswith(f"{header} took it")
    assert "at the top level" in error.wanted
    assert f"above {above}" in error.next


def test_a_required_key_in_the_wrong_table_is_one_mistake(tmp_path: Path) -> None:
    error = refused(tmp_path, TOP.replace('image = "eng"\n', "") + SERVE + 'image = "eng"\n')
    assert error.what == "`image` stands in the wrong table"


def test_a_required_key_of_one_of_several_tables_is_one_mistake(tmp_path: Path) -> None:
    other = STAGING.replace('"hub"', '"other"')
    text = TOP + SERVE + STAGING + EXPORT + 'src = "/srv/hub"\n' + other + 'src = "/srv/hub"\n'
    error = refused(tmp_path, text)
    assert (error.what, error.wanted) == ("`src` stands in the wrong table", "`src` in [[staging]]")
    assert "up to just below [[staging]] on line 7" in error.next


def test_the_trap_to_a_table_in_between(tmp_path: Path) -> None:
    bench = '[bench]\nimage = "eng"\n[bench.throughput]\ntokenizer = "t"\nlabel = "x"\n'
    error = refused(tmp_path, TOP + SERVE + bench)
    assert (error.where, error.wanted) == (f"{NAME}:11", "`label` in [bench]")
    assert "just below [bench] on line 7" in error.next


def test_a_missing_key_that_stands_in_a_table_where_it_is_right_too(tmp_path: Path) -> None:
    error = refused(tmp_path, TOP.replace('image = "eng"\n', "") + SERVE + '[bench]\nimage = "eng"\n')
    assert error.what == "`image` is missing at the top level"
    assert "inside [bench] (line 6)" in error.found


def test_the_reverse_a_key_of_a_table_at_the_top(tmp_path: Path) -> None:
    error = refused(tmp_path, TOP + 'port = 8000\n[serve]\ncommand = ["engine"]\n')
    assert (error.where, error.wanted) == (f"{NAME}:4", "`port` belongs in [serve]")
    assert error.next == "move `port` to just below [serve] on line 5"


@pytest.mark.parametrize(
    ("text", "line", "wanted"),
    [
        (TOP + "descripton = 'x'\n" + SERVE, 4, "did you mean `description`?"),
        (TOP + SERVE + "ready-timeout = 3\n", 7, "did you mean `ready_timeout`?"),
        (TOP + "[server]\nport = 1\n" + SERVE, 4, "did you mean `serve`?"),
        (TOP + SERVE + "prot = 3\n", 7, "did you mean `port`?"),
        (TOP + SERVE + GATE + "max_tokns = 3\n", 12, "did you mean `max_tokens`?"),
        (TOP + SERVE.replace("port", "zzzzz = { a = 1 }\nport"), 6, "one of: args, command, "),
        (TOP + SERVE + GATE.replace('"smoke"', '"smok"'), 9, "did you mean `smoke`?"),
        ('"clustr" = "x"\n' + TOP + SERVE, 1, "did you mean `cluster`?"),
    ],
)
def test_unknown_keys(tmp_path: Path, text: str, line: int, wanted: str) -> None:
    error = refused(tmp_path, text)
    assert error.where == f"{NAME}:{line}"
    assert error.wanted.startswith(wanted)


@pytest.mark.parametrize(
    ("text", "line", "what", "wanted"),
    [
        (TOP + SERVE.replace("8000", "99999"), 6, "`port` does not fit in [serve]", "a whole number <= 65535"),
        (TOP + SERVE.replace("8000", '"8000"'), 6, "`port` does not fit in [serve]", "a whole number"),
        (TOP + SERVE.replace('["engine"]', "[]"), 5, "`command`", "a list of length >= 1"),
        (TOP + SERVE.replace('["engine"]', '[\n"a",\n1]'), 7, "item 2 of `command` does not fit in [serve]", "text"),
        (TOP + SERVE + "[serve.env]\nA = 1\n", 8, "`A` does not fit in [serve.env]", "text"),
        (TOP + SERVE + "env = { A = 1 }\n", 7, "`A` does not fit in [serve.env]", "text"),
        (TOP + SERVE + '[staging]\nid = "a"\n', 7, "`staging` does not fit", "[[staging]], double brackets"),
        (TOP + SERVE.replace("[serve]", "[[serve]]"), 4, "[serve] is a single table", "[serve], single brackets"),
        (TOP + "serve = 3\n", 4, "[serve] is a single table", "[serve], single"),
        (TOP.replace('"eng"', '"a b"') + SERVE, 2, "`image` does not fit", "letters, digits"),
        (TOP.replace('"eng"', '"a\\n"') + SERVE, 2, "`image` does not fit", "letters, digits"),
        (TOP + SERVE + GATE.replace('kind = "smoke"\n', ""), 7, "`kind` is missing in [[gates]]", 'kind = "smoke" or'),
        (TOP + SERVE + GATE.replace('prompt = "p"\n', ""), 7, "`prompt` is missing in [[gates]]", "prompt = ..."),
        (TOP, 1, "`serve` is missing at the top level", "serve = ..."),
        (TOP + SERVE + "runtime = 'dokcer'\n", 7, "`runtime` does not fit in [serve]", "did you mean `docker`?"),
        (TOP + "protect = 1\n" + SERVE, 4, "`protect` does not fit", "true or false"),
        (TOP + "protect = 2024-01-01\n" + SERVE, 4, "`protect` does not fit", "true or false"),
        (TOP + SERVE.replace("8000", "1" + "0" * 30), 6, "`port` does not fit", ""),
    ],
)
def test_values_that_do_not_fit(tmp_path: Path, text: str, line: int, what: str, wanted: str) -> None:
    error = refused(tmp_path, text)
    assert error.where == f"{NAME}:{line}"
    assert what in error.what
    assert wanted in error.wanted


def test_all_mistakes_of_a_file_are_told_at_once_in_their_order(tmp_path: Path) -> None:
    error = refused(tmp_path, "foo = 1\n" + TOP + SERVE + "bar = 2\n" + GATE + "protect = true\n" + GATE + "qux = 3\n")
    assert error.what == f"4 mistakes in {NAME}"
    assert error.where == f"{NAME}:1"
    told = [line.partition(": ") for line in error.found.splitlines() if line.startswith(NAME)]
    assert [where.rpartition(":")[2] for where, _, _ in told] == ["1", "8", "14", "20"]
    assert [what.split("`")[1] for _, _, what in told] == ["foo", "bar", "protect", "qux"]


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (b"a = 1\nb = = 2\n", 2, "is not TOML"),
        (b"a = 1\n\na = 2\n", 3, "is not TOML"),
        (b"[a]\n[a]\n", 2, "is not TOML"),
        (b'a = "x\n', 1, "is not TOML"),
        (b"a = " + b"[" * 3000, 1, "is not TOML"),
        (b"a = " + b"9" * 5000, 1, "is not TOML"),
        (b"a = 1\nb = '\xff'\n", 2, "is not UTF-8"),
        (b"\xef\xbb\xbfa = 1\n", 1, "byte order mark"),
        (b"#" * (tomlfile.LIMIT + 1), 1, "is too big"),
    ],
)
def test_what_is_no_toml(tmp_path: Path, data: bytes, line: int, says: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=says) as caught:
        tomlfile.read(path, Config, tmp_path)
    assert caught.value.where == f"config.toml:{line}"
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("split = { 1 = [[0, 5]], 1 = [[0, 9]] }\n", "`1` is there twice: split = {"),
        ("a = { b = 1, b = 2 }\n", "`b` is there twice"),
        ("a = { b = { c = 1 }, b.c = 2 }\n", "`b.c` is there twice"),
        ("a = { x = 1 }\na.y = 2\n", "`a` is there twice: a.y = 2"),
        ("a = [1]\n[[a]]\n", "`a` is there twice: [[a]]"),
        ("[a]\n[a]\n", "`a` is there twice: [a]"),
        ("a = 1\na = 2\n", "a key that is there twice: a = 2"),
    ],
)
def test_what_is_there_twice(tmp_path: Path, text: str, name: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not TOML") as caught:
        tomlfile.read(path, Config, tmp_path)
    assert caught.value.found.startswith(name)
    assert caught.value.wanted == "each key and each table once"
    assert caught.value.next == "take one of the two out, or write them as one"


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, says in (("gone", "does not exist"), ("folder", "is a folder")):
        with pytest.raises(ConfigError, match=says):
            tomlfile.read(tmp_path / name, Config, tmp_path)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('[nodes.dgx1]\nstor = "x"\n', 2, "unknown key `stor` in [nodes.dgx1]"),
        ('[nodes]\n"dgx 1" = {}\n', 2, "`dgx 1` cannot be a name in [nodes]"),
        ("[clusters.a]\nnodes = []\n", 2, "`nodes` does not fit in [clusters.a]"),
        ("[pools]\nbuild = 0\n", 2, "`build` does not fit in [pools]"),
        ('[nodes.dgx1]\nstore = "x"\npools = { build = 1 }\n', 3, "`pools` stands in the wrong table"),
    ],
)
def test_tables_with_free_names(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = put(tmp_path, "config.toml", text)
    with pytest.raises(ConfigError) as caught:
        tomlfile.read(path, Config, tmp_path)
    assert (caught.value.where, caught.value.what) == (f"config.toml:{line}", what)


def test_a_pool_may_be_called_like_a_key(tmp_path: Path) -> None:
    assert tomlfile.read(put(tmp_path, "config.toml", "[pools]\nnodes = 3\n"), Config, tmp_path).pools == {"nodes": 3}


def test_a_healthy_file_pays_for_no_explanation(tmp_path: Path) -> None:
    path = put(tmp_path, NAME, RECIPE)
    code = (
        "import sys\nfrom sparkbuild.workspace import load\nfrom sparkbuild.workspace.toml import tomlfile\n"
        "from sparkbuild.workspace.shapes.schema import RecipeFile\n"
        f"tomlfile.read({str(path)!r}, RecipeFile, '.')\n"
        "bad = {'difflib', 'dataclasses', 'sparkbuild.workspace.toml.check', 'sparkbuild.workspace.toml.scan'}\n"
        "print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
