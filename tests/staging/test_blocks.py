"""From blocks to goals: what is in a key and what is not, a goal per repository, what the agent is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.agent.wire.layout import LEDGER
from sparkbuild.core.goal import Goal
from sparkbuild.staging.blocks import Place, repo_folder, staged
from sparkbuild.workspace.shapes.stagingschema import FilesStaging, HubStaging, RowsStaging

COMMIT = "fb2764a5cf321eaa5070ca8f9e892818f477c16d"


PLACE = Place("big", "dgx1")


def mirror(place: Place = PLACE, **changes: Any) -> tuple[Goal, ...]:
    fields: dict[str, Any] = {"id": "weights", "src": "/srv/models/hub", "repos": ("org/one",), "skip": ("*page15*",)}
    return staged(HubStaging(**{**fields, **changes}), place).goals


def rows(rank: int = 1, ranks: int = 4, **changes: Any) -> Goal:
    fields: dict[str, Any] = {"id": "rows", "src": "/srv/models/hub", "repos": ("org/one",), "revision": COMMIT}
    return staged(RowsStaging(**{**fields, **changes}), Place("big", f"dgx{rank + 1}", rank, ranks)).goals[0]


def test_a_mirror() -> None:
    (made,) = mirror()
    assert made.task == "stage:big:dgx1:weights"
    assert made.spec.dst == "staged/big/weights/models--org--one"
    assert made.spec.what == {
        "kind": "hub-mirror",
        "cache": "/srv/models/hub",
        "repo": "org/one",
        "revision": "main",
        "skip": ["*page15*"],
    }
    assert made.spec.shared, "other nodes want the same bytes"
    assert made.spec.linked, "exports are hard links of it"
    assert "cache" not in made.key.parts, "the same bytes from another NAS are the same"


def test_a_goal_for_each_repository() -> None:
    made = mirror(repos=("org/one", "org/two"))
    assert [goal.task for goal in made] == ["stage:big:dgx1:weights:one", "stage:big:dgx1:weights:two"]
    assert [goal.spec.dst.rpartition("/")[2] for goal in made] == ["models--org--one", "models--org--two"]


def test_two_recipes_may_share_a_mirror() -> None:
    (one,), (other,) = mirror(dst="/data/hub"), mirror(Place("small", "dgx1"), dst="/data/hub")
    assert (one.spec.dst, one.key) == (other.spec.dst, other.key)
    assert mirror(skip=())[0].key != one.key


@pytest.mark.parametrize(
    "change", [{"min_free": 10**9}, {"bwlimit": 10**8}, {"verify": "full"}, {"dst": "/data"}, {"src": "/mnt/hub"}]
)
def test_where_and_how_fast_is_not_what(change: dict[str, Any]) -> None:
    assert mirror(**change)[0].key == mirror()[0].key
    assert rows(**change).key == rows().key


def test_rows_of_a_rank() -> None:
    made = rows()
    assert made.task == "stage:big:dgx2:rows"
    assert made.spec.what == {
        "kind": "packed",
        "cache": "/srv/models/hub",
        "repo": "org/one",
        "revision": COMMIT,
        "layers": [],
        "split": "even",
        "tp": 4,
        "rank": 1,
    }
    assert made.key.parts["format"] == LEDGER
    assert not made.spec.shared, "each rank has rows of its own"


@pytest.mark.parametrize(
    "change", [{"rank": 2}, {"ranks": 8}, {"split": "heads"}, {"layers": (1,)}, {"revision": "main"},
               {"layout": "page15"}, {"layout": "sparse-copy"}]
)  # fmt: skip
def test_what_makes_other_rows(change: dict[str, Any]) -> None:
    assert rows(**change).key != rows().key


def test_a_model_folder() -> None:
    made = rows(repos=(), src="/srv/models/plain", split=((0, 5), (5, 9), (9, 9), (9, 12)))
    assert made.spec.what["model"] == "/srv/models/plain"
    assert made.spec.what["split"] == [[0, 5], [5, 9], [9, 9], [9, 12]]
    assert "cache" not in made.spec.what
    assert made.spec.what["revision"] == made.key.parts["revision"] == ""
    assert rows(revision="").spec.what["revision"] == "main"


def test_ranges_for_each_layer() -> None:
    made = rows(ranks=2, split={"1": ((0, 5), (5, 9)), "14": ((0, 4), (4, 11))})
    assert made.spec.what["split"] == {"1": [[0, 5], [5, 9]], "14": [[0, 4], [4, 11]]}


def test_a_sparse_copy_of_whole_shards_is_another() -> None:
    one = rows(layout="sparse-copy")
    assert one.spec.what["complete_shard"] is False
    assert rows(layout="sparse-copy", complete_shard=True).key != one.key


def test_a_folder() -> None:
    block = FilesStaging(id="notes", src="/srv/models/notes", members=("*.json",), skip=("old/*",))
    (made,) = staged(block, Place("big", "dgx1")).goals
    wanted = {"kind": "folder", "path": "/srv/models/notes", "members": ["*.json"], "skip": ["old/*"]}
    assert made.spec.what == wanted
    assert made.key.parts["source"] == "/srv/models/notes", "nothing else is known of a folder beforehand"
    assert made.needs == ()


@pytest.mark.parametrize(("repo", "name"), [("org/one", "models--org--one"), ("gpt2", "models--gpt2")])
def test_folders_of_repositories(repo: str, name: str) -> None:
    from huggingface_hub.file_download import repo_folder_name  # noqa: PLC0415 - half a second

    assert repo_folder(repo) == name == repo_folder_name(repo_id=repo, repo_type="model")
