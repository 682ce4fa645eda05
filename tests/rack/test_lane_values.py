"""Awkward values reach a container as they were written, and a secret reaches it and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.rack.lanes import NAME, RECIPE, STORE, Lanes, box, record, shell
from tests.rack.node import Node
from tests.workspace_tool import Done

pytestmark = pytest.mark.usefixtures("possible")
AWKWARD = "a b  'c' \"d\" $HOME ${PATH} $(id) `id` \\n \\ ; & | > * ? ~ # ü\n  second line\n"
FOLDER = 'it\'s a "dir" $HOME $(id) ; & * é'
SECRET = 'tok\'en "$HOME" `id` #42-zzyzx'


def inside(node: Node, program: str) -> str:
    """What a Python program prints in the lane's container."""
    return node.docker("exec", NAME, "/usr/bin/python3.11", "-c", program).out


def test_awkward_values_arrive_unchanged(lanes: Lanes) -> None:
    lanes.sleeping()
    source = f"/srv/{FOLDER}"
    target = f"/mnt/{FOLDER}"
    staged = f"/srv/staged here/{FOLDER}"
    lanes.edit("[serve.docker]\n", f"[serve.env]\nAWKWARD = {json.dumps(AWKWARD)}\n\n[serve.docker]\n")
    mount = f"[[serve.mounts]]\nsource = {json.dumps(source)}\ntarget = {json.dumps(target)}\nread_only = false\n"
    lanes.edit("[[staging]]\n", f"{mount}\n[[staging]]\ndst = {json.dumps(staged)}\n")
    # an argument of the rank's own program, after the `-c` that only sleeps
    lanes.edit('time.sleep(999)"]', f'time.sleep(999)", {json.dumps(AWKWARD)}]')
    for node in lanes.nodes:
        shell(node, 'mkdir -p "$1"; printf %s "$2" >"$1/file"', source, node.name)
    try:
        lanes.ok(f"serve:{RECIPE}")
        for node in lanes.nodes:
            seen = f"import os; print(ascii([os.environ['AWKWARD'], open({target!r} + '/file').read()]))"
            assert inside(node, seen) == f"{[AWKWARD, node.name]!a}\n"
            assert inside(node, f"import os; print(*os.listdir({staged!r}))").count(".gguf") == 1
            assert box(node)["Args"][-1] == AWKWARD
            modes = {mount["Destination"]: mount["RW"] for mount in box(node)["Mounts"]}
            assert (modes[target], modes[staged]) == (True, False)
        plan = lanes.ok("plan", "-v", f"serve:{RECIPE}").out
        assert f"env  AWKWARD={json.dumps(AWKWARD, ensure_ascii=False)}\n" in plan
        assert f"mount {source} at {target}, writable\n" in plan
        assert lanes.ok(f"stop:{RECIPE}")
    finally:
        for node in lanes.nodes:
            shell(node, 'rm -rf "$1" "/srv/staged here"', source)


def test_a_newline_in_a_path_that_is_mounted(lanes: Lanes) -> None:
    lanes.sleeping()
    source = "/srv/two\nlines"
    mount = f'[[serve.mounts]]\nsource = {json.dumps(source)}\ntarget = "/mnt/x"\n'
    lanes.edit("[[staging]]\n", f"{mount}\n[[staging]]\n")
    for node in lanes.nodes:
        shell(node, 'mkdir -p "$1"; touch "$1/here"', source)
    lanes.ok(f"serve:{RECIPE}")
    assert inside(lanes.nodes[1], "import os; print(*os.listdir('/mnt/x'))") == "here\n"
    for node in lanes.nodes:
        shell(node, 'rm -r "$1"', source)


def command_lines(node: Node) -> str:
    return shell(node, "ps -eww -o args; ps -eww -o args e")


def local_command_lines() -> str:
    return subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout


def test_a_secret_is_a_file_in_the_container_and_nowhere_else(lanes: Lanes, tmp_path: Path) -> None:
    lanes.sleeping()
    lanes.serve_with('secrets = ["HUB_TOKEN", "OTHER"]')
    lanes.env["HUB_TOKEN"] = SECRET
    (lanes.root / "secrets.env").write_text("OTHER=second-zzyzx\n")
    said: list[Done] = [lanes.ok("plan", "-v", f"serve:{RECIPE}")]
    process = lanes.start_and_wait("created")
    during = [local_command_lines(), *(command_lines(node) for node in lanes.nodes)]
    assert process.wait(60) == 0
    said += [Done(0, *process.communicate())]
    said += [lanes.ok("plan", "-v", f"serve:{RECIPE}"), lanes.ok("status", "--json"), lanes.ok("logs", RECIPE)]
    for node in lanes.nodes:
        read = "print(ascii([open('/run/secrets/' + name).read() for name in ('HUB_TOKEN', 'OTHER')]))"
        assert inside(node, read) == f"{[SECRET, 'second-zzyzx']!a}\n"
        assert inside(node, "import os; print(os.environ['HUB_TOKEN_FILE'])") == "/run/secrets/HUB_TOKEN\n"
        assert inside(node, "import os; print(os.access('/run/secrets/HUB_TOKEN', os.W_OK))") == "False\n"
        during += [command_lines(node), json.dumps(box(node)), json.dumps(record(node))]
        during += [
            shell(node, f"LC_ALL=C grep -rlF zzyzx {STORE}/lanes /root /tmp /var/log /var/lib/docker/containers; true")
        ]
        found = shell(node, "find /dev/shm -path '*sparkbuild-*' -type f -printf '%m %f\\n'").splitlines()
        assert sorted(found) == ["600 HUB_TOKEN", "600 OTHER"]
        assert shell(node, "stat -c %a /dev/shm/sparkbuild-0").strip() == "700"
    for text in (*during, *(done.text for done in said), lanes.everything_written()):
        assert "zzyzx" not in text
    assert "secret HUB_TOKEN as the file /run/secrets/HUB_TOKEN" in said[0].out
    assert not list(tmp_path.glob("**/*zzyzx*"))
    lanes.ok(f"stop:{RECIPE}")
    assert lanes.left() == [], "its secrets are gone with it"


def test_a_secret_in_a_command_or_without_a_value_is_refused(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.serve_with('secrets = ["HUB_TOKEN"]')
    done = lanes.fails(f"serve:{RECIPE}")
    assert "secret HUB_TOKEN has no value" in done.text
    lanes.env["HUB_TOKEN"] = "import time"
    done = lanes.fails(f"serve:{RECIPE}")
    assert "the value of secret HUB_TOKEN would stand in the command line" in done.text
    assert lanes.left() == []
