"""Every module that takes apart what others wrote is in one of these tables: with the test that feeds it generated
input, or with the reason why nobody else writes what it reads. And nested JSON, which Python ends with RecursionError
and not with ValueError, is thought of wherever JSON is read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READERS = {
    "json.loads", "json.load", "msgspec.json.decode", "_decoder.decode", "struct.unpack", "struct.unpack_from",
    "json.JSONDecoder().raw_decode", "tarfile.open", "opentar.opened", "zipfile.ZipFile", "tomli.loads",
}  # fmt: skip

# module -> where its parser is tested, in tests/parsers/ unless it says a folder
TESTED = {
    "agent/disk/files.py": "test_store.py",
    "agent/disk/opentar.py": "test_images.py",
    "agent/docker/built.py": "test_images.py",
    "agent/docker/bydigest.py": "test_images.py",
    "agent/docker/changes.py": "test_images.py",
    "agent/docker/engine.py": "test_docker_answers.py",
    "agent/docker/images.py": "test_images.py",
    "agent/docker/upstream.py": "test_images.py",
    "agent/hub/repository.py": "test_model_files.py",
    "agent/image/debs.py": "test_images.py",
    "agent/image/export.py": "test_images.py",
    "agent/image/repro.py": "test_images.py",
    "agent/image/saved.py": "test_images.py",
    "agent/image/wheels.py": "test_images.py",
    "agent/lane/hold.py": "test_peers.py",
    "agent/lane/answers.py": "test_agent_words.py",
    "agent/ledger/index.py": "test_disk.py",
    "agent/ledger/ledger.py": "test_disk.py",
    "agent/ledger/mountlist.py": "test_store.py",
    "agent/ledger/stamps.py": "test_disk.py",
    "agent/machine/network.py": "test_git_and_machine.py",
    "agent/peers/offer.py": "test_peers.py",
    "agent/rows/tables.py": "test_model_files.py",
    "agent/source/gguf.py": "test_model_files.py",
    "agent/source/safetensors.py": "test_model_files.py",
    "agent/source/shardindex.py": "tests/agent/source/test_whole.py",
    "agent/source/shards.py": "tests/agent/source/test_whole.py",
    "agent/source/sparsecopy.py": "test_store.py",
    "agent/source/zipped.py": "test_images.py",
    "agent/stage/peers.py": "test_peers.py",
    "agent/stage/scrub.py": "tests/agent/stage/test_scrub.py",
    "bench/benchy.py": "test_workspace_files.py",
    "bench/manifest.py": "test_workspace_files.py",
    "bench/tooleval.py": "test_workspace_files.py",
    "core/locks.py": "test_workspace_files.py",
    "core/state.py": "test_workspace_files.py",
    "gates/tools.py": "test_workspace_files.py",
    "images/content.py": "test_workspace_files.py",
    "nodes/cluster.py": "test_workspace_files.py",
    "nodes/engine.py": "test_engine_answers.py",
    "nodes/rpc/reply.py": "test_agent_words.py",
    "plugin/adapters/backend.py": "test_workspace_files.py",
    "serving/ready/answer.py": "test_engine_answers.py",
    "upstream/logins.py": "test_workspace_files.py",
    "workspace/images/dockerread.py": "test_upstream.py",
    "workspace/toml/edit.py": "test_workspace_files.py",
    "workspace/toml/tomlfile.py": "test_workspace_files.py",
    "workspace/toml/scan.py": "test_workspace_files.py",
}
# module -> who wrote what it reads
OURS = {
    "agent/docker/registry.py": "the config of an image of ours, from the caller",
    "agent/image/buildkit.py": "writes",
    "agent/image/context.py": "an archive of agent/git/archive.py, of the sha256 in its receipt",
    "agent/lane/keeper.py": "its stdin, from agent/lane/launch.py",
    "agent/main.py": "its stdin, from the caller",
    "agent/store/tar.py": "writes",
    "bench/harness.py": "a program of its own, run by -c",
    "core/templates/long.py": "core/templates/process.py",
    "core/templates/process.py": "core/templates/long.py",
    "images/prebuilt.py": "itself, in the store of this machine",
    "nodes/rpc/pack.py": "writes",
    "nodes/ssh/agent.py": "lines of an agent, taken apart again by nodes/rpc/reply.py",
    "serving/lane.py": "itself, a moment before",
    "staging/blocks.py": "itself, a moment before",
}
# Calls outside of a `try` for RecursionError: what is read there cannot be nested, is ours, or is caught by the caller.
FLAT = {
    "agent/ledger/mountlist.py": "same() reads what it wrote a moment before",
    "agent/source/shardindex.py": "one string or number, found by a scanner that counts levels itself",
    "agent/source/shards.py": "one string, found by a regular expression",
    "workspace/toml/edit.py": "one value that was read before",
    "workspace/toml/scan.py": "one string of TOML",
}
_JSON = {
    "json.loads",
    "json.JSONDecoder().raw_decode",
    "json.load",
    "msgspec.json.decode",
    "_decoder.decode",
    "tomli.loads",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "sparkbuild").rglob("*.py")):
        yield str(path.relative_to(ROOT / "sparkbuild")), ast.parse(path.read_text())


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in READERS:
            yield node


def unguarded(tree: ast.AST) -> set[int]:
    """The lines of calls that read JSON where no RecursionError is caught."""
    wanted = {call.lineno for call in calls(tree) if ast.unparse(call.func) in _JSON}
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            caught = any("RecursionError" in ast.unparse(one.type) for one in node.handlers if one.type)
        elif isinstance(node, ast.With):
            caught = any("RecursionError" in ast.unparse(item.context_expr) for item in node.items)
        else:
            continue
        if caught:
            wanted -= {call.lineno for statement in node.body for call in calls(statement)}
    return wanted


def test_every_module_that_reads_others_is_in_a_table() -> None:
    readers = {name for name, tree in modules() if any(calls(tree))}
    new = sorted(readers - set(TESTED) - set(OURS))
    assert not new, f"without a row in TESTED or OURS: {new}"
    gone = sorted((set(TESTED) | set(OURS)) - readers)
    assert not gone, f"a row of a module that reads nothing any more: {gone}"
    assert not set(TESTED) & set(OURS)


@pytest.mark.parametrize(("module", "test"), sorted(TESTED.items()))
def test_the_test_of_a_parser_knows_it(module: str, test: str) -> None:
    place = ROOT / test if "/" in test else ROOT / "tests/parsers" / test
    assert place.is_file(), f"{module}: {place} is gone"


def test_json_that_is_nested_without_end_is_thought_of() -> None:
    wrong = [
        f"{name}:{line}"
        for name, tree in modules()
        if name not in OURS and name not in FLAT
        for line in sorted(unguarded(tree))
    ]
    assert not wrong, f"RecursionError is not caught: {wrong}"


def test_tars_of_others_are_read_in_one_way() -> None:
    """Python's own reader hangs, or fills the memory: see agent/disk/opentar.py."""
    wrong = []
    for name, tree in modules():
        for call in calls(tree):
            if ast.unparse(call.func) != "tarfile.open" or name == "agent/disk/opentar.py":
                continue
            modes = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
            if not any(isinstance(mode, ast.Constant) and str(mode.value).startswith("w") for mode in modes):
                wrong.append(f"{name}:{call.lineno}")
    assert not wrong, f"read by opentar.opened instead: {wrong}"
