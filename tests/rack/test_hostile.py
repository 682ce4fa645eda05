"""A node with a second, hostile user, who has no root: what it puts where everybody may write does us no harm."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.nodes.rpc import pack
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.rack.reach import LOOK, NOTHING, place, reached, workspace
from tests.rack.users import User, people

pytestmark = pytest.mark.usefixtures("possible")
PRECIOUS = "/srv/precious"


@pytest.fixture(scope="module")
def wire(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    """One node, without docker."""
    with Rack.up(1, docker=False, disk_mb=300) as up:
        yield up


@pytest.fixture
def node(wire: Rack) -> Node:
    return wire.nodes[0]


@pytest.fixture
def users(node: Node) -> Iterator[tuple[User, User]]:
    """An operator, whose only copy of something is on the node, and somebody who wants it gone."""
    with people(node, "op", "mallory") as (op, mallory):
        node.run(["install", "-d", "-o", "op", PRECIOUS, f"{PRECIOUS}/demo-1", f"{PRECIOUS}/l1"], check=True)
        op.sh('echo precious | tee "$1/demo-1/w" "$1/l1/w" >"$1/w"', PRECIOUS)
        yield op, mallory
        node.run(["rm", "-rf", PRECIOUS, "/srv/open"], check=True)


def agent(node: Node, user: User, verb: str, request: dict[str, Any]) -> dict[str, Any]:
    """One call of the agent of this checkout, as that user, on the node. It ends when its stdin does, so that stays,
    and holds nothing whose end is waited for here.
    """
    node.path("/srv/agent.zip").write_bytes(pack.archive())
    code = "import sys; sys.path.insert(0, '/srv/agent.zip'); from sparkbuild.agent.main import main; "
    code += "sys.exit(main(sys.argv[1:2], sys.argv[2].encode() + bytes([10])))"
    keep = 'sleep 30 2>/dev/null | { python3 -I -S -c "$1" "$2" "$3"; kill $$; }'
    done = user.run(["sh", "-c", keep, "sh", code, verb, json.dumps(request)])
    assert done.out, done
    return dict(json.loads(done.out.splitlines()[-1]))


def precious(op: User) -> list[str]:
    return op.sh("find /srv/precious -type f | sort").split()


ALL = [f"{PRECIOUS}/demo-1/w", f"{PRECIOUS}/l1/w", f"{PRECIOUS}/w"]


@pytest.mark.parametrize("level", ["top", "lane"])
@pytest.mark.parametrize("verb", ["stop", "prepare"])
def test_a_link_in_memory_lets_nobody_delete_a_folder(
    node: Node, users: tuple[User, User], level: str, verb: str
) -> None:
    """/dev/shm/sparkbuild-<uid> is a name that everybody knows beforehand, and everybody may make it."""
    op, mallory = users
    store = f"{op.home}/sparkbuild"
    lane = f"demo-{hashlib.sha256(store.encode()).hexdigest()[:8]}"
    top = f"/dev/shm/sparkbuild-{op.uid}"
    if level == "top":
        node.run(["mv", f"{PRECIOUS}/demo-1", f"{PRECIOUS}/{lane}"], check=True)
        mallory.sh('ln -s "$2" "$1"', top, PRECIOUS)
    else:
        mallory.sh('mkdir -m 777 "$1" && ln -s "$2" "$1/$3"', top, PRECIOUS, lane)
    before = precious(op)
    request = {"store": store, "recipe": "demo", "grace": 1, "launch": "l1"}
    request |= {"folder": "files-1", "secrets": {"TOKEN": "hush"}} if verb == "prepare" else {}
    for launch in ("l1", ""):
        if verb == "stop" or launch:
            told = agent(node, op, verb, {**request, "launch": launch})
    assert precious(op) == before
    if verb == "stop":
        assert told["event"] == "result", "there is nothing of ours, and that is no mistake of the operator"
    else:
        assert (told["what"], told["where"]) == ("the folder for secrets belongs to somebody else", top)
        assert "mallory" in told["found"]
        assert "hush" not in node.run(["sh", "-c", f"cat {PRECIOUS}/*/* {top}/*/* 2>/dev/null"]).out


@pytest.fixture
def root(tmp_path: Path, wire: Rack, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return workspace(tmp_path / "ws", wire)


def refused(root: Path, node: Node, store: str) -> SparkbuildError:
    with pytest.raises(NodeError) as raised, reached(root, {"dgx1": place(node, user="op", store=store)}) as nodes:
        nodes.agent("dgx1").call("facts", LOOK)
    return raised.value


EVIL = (
    'mkdir -p "$1/agent/$2/sparkbuild/agent" && cd "$1/agent/$2/sparkbuild" && touch __init__.py agent/__init__.py && '
)
EVIL += 'echo "import os; os.system(\\"touch /tmp/owned\\")" >agent/main.py'


@pytest.mark.parametrize("where", ["first", "in the store", "a link", "sticky"])
def test_code_of_others_in_the_store_is_not_run(node: Node, users: tuple[User, User], root: Path, where: str) -> None:
    op, mallory = users
    mode = "1777" if where == "sticky" else "777"
    node.run(["install", "-d", "-m", mode, "/srv/open"], check=True)
    store = "/srv/open/store"
    if where == "in the store":
        op.sh('mkdir -m 755 "$1"', store)
        mallory.sh('mv "$1" "$1.old" && mkdir -m 777 "$1"', store)
    if where == "a link":
        mallory.sh('mkdir -m 777 /tmp/hers && ln -s /tmp/hers "$1"', store)
    mallory.sh(EVIL, store, pack.name())
    mallory.sh('chmod -R go+rX "$1"', "/srv/open/store/agent")
    error = refused(root, node, store)
    assert node.run(["test", "-e", "/tmp/owned"]).code != 0, "the code of somebody else ran as the operator"
    text = str(error)
    assert "the agent's code on dgx1 is not run: others than op may change it" in text
    assert ("/srv/open " in text and "mode 777" in text) if where != "sticky" else "owner mallory" in text
    assert "set `store` of dgx1 in config.toml" in text


def test_a_store_of_ours_in_a_sticky_folder_works(node: Node, users: tuple[User, User], root: Path) -> None:
    """As below /tmp: nobody may move there what is of somebody else."""
    op, mallory = users
    node.run(["install", "-d", "-m", "1777", "/srv/open"], check=True)
    op.sh("mkdir -m 755 /srv/open/store")
    for _ in range(2):
        with reached(root, {"dgx1": place(node, user="op", store="/srv/open/store")}) as nodes:
            assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
    assert mallory.run(["touch", "/srv/open/store/agent/x"]).code != 0


@pytest.mark.parametrize("umask", ["000", "077"])
def test_the_modes_of_the_code_are_fixed_whatever_the_umask(users: tuple[User, User], umask: str) -> None:
    op, _ = users
    store, data = f"{op.home}/sparkbuild", pack.archive()
    header = {"store": store, "name": pack.name(), "sha256": hashlib.sha256(data).hexdigest()}
    command = f"umask {umask}; {pack.unpack_command('python3')}"
    done = op.run(["sh", "-c", command], text=json.dumps(header).encode() + b"\n" + data)
    assert json.loads(done.out.splitlines()[-1]) == {"event": "result"}, done.err
    modes = op.sh('find "$1/agent/$2" -printf "%y %m\\n" | sort -u', store, pack.name()).splitlines()
    assert modes == ["d 755", "f 644"]
    assert op.sh('stat -c %a "$1"', store).strip() in {"755", "700"}


def test_code_that_was_changed_is_sent_anew(node: Node, users: tuple[User, User], root: Path) -> None:
    op, _ = users
    store = f"{op.home}/sparkbuild"
    main = f"{store}/agent/{pack.name()}/sparkbuild/agent/main.py"
    for _ in range(2):
        with reached(root, {"dgx1": place(node, user="op", store=store)}) as nodes:
            assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
        assert "tampered" not in op.sh('cat "$1"', main)
        op.sh('echo "# tampered" >>"$1"', main)


def test_a_user_s_own_group_may_write(node: Node, users: tuple[User, User], root: Path) -> None:
    """Umask 002, where each user has a group of the same name: nobody else is in it, until somebody is."""
    op, _ = users
    store = f"{op.home}/sparkbuild"
    op.sh('mkdir "$1"', store, umask=0o002)
    with reached(root, {"dgx1": place(node, user="op", store=store)}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
    node.run(["gpasswd", "-a", "mallory", "op"], check=True)
    assert f"{store} on the way" in str(refused(root, node, store))
    node.run(["gpasswd", "-d", "mallory", "op"], check=True)


def test_a_shared_store_is_refused_at_the_start(node: Node, root: Path) -> None:
    """Of a group of people: who else could change the code is said, and what to do."""
    with people(node, "op", "ann", groups=["models"]) as (op, ann):
        node.run(["install", "-d", "-m", "2775", "-o", "ann", "-g", "models", "/srv/open"], check=True)
        error = str(refused(root, node, "/srv/open"))
        assert "owner ann, mode 2775" in error
        assert "to a folder of op's own" in error
        assert op.uid != ann.uid
        node.run(["rm", "-rf", "/srv/open"], check=True)
