"""Which layer a file of tests is in, by its path; conftest marks its tests so.

unit   starts no process (conftest refuses it): `./doitw test -m unit` is what is run after each edit
agent  calls the agent as a process, and what it starts
slow   starts doit, an engine, pip and the like
rack   needs nodes

A file is in one layer: where one test of a file starts a process, the file is in the layer of that.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, NoReturn
from unittest import mock

UNIT, AGENT, SLOW, RACK = "unit", "agent", "slow", "rack"
LAYERS = (UNIT, AGENT, SLOW, RACK)
NOT_LONG = " and not long"  # what `./doitw test -m LAYER` adds

# Paths below tests/ without .py; one that stands for a folder stands for all in it. The longest that fits counts, and
# what is not named is in `unit`.
_OF = {
    RACK: "rack campaign",
    AGENT: "agent",
    SLOW: """
        plugin doitw
        app/goals/test_stage_source app/test_health app/test_odd_answers app/test_parts app/test_unseen
        bench/test_benchy bench/test_goal bench/test_harness bench/test_measure bench/test_served
        core/test_child core/test_interrupt core/test_locks_pools core/test_state core/test_templates core/test_tether
        core/test_wholefile core/test_writable
        gates/test_check
        images/test_context images/test_demo_content images/test_docker_assemble images/test_dockerfile
        images/test_ranks images/test_shipped_images
        nodes/local/test_early nodes/local/test_local nodes/relay/test_ways nodes/rpc/test_pack nodes/rpc/test_process
        nodes/ssh/test_openssh nodes/ssh/test_sshconfig
        nodes/test_engine nodes/test_observer nodes/test_survey
        parsers
        serving/launch/test_hold serving/launch/test_render serving/ready/test_permanent_answers
        staging/test_chain staging/test_exports staging/test_real_size staging/test_seeds staging/test_staged
        upstream/test_logins
        workspace/recipes/test_stagingblocks workspace/test_init workspace/test_load workspace/toml/test_toml
        test_bad_engine test_benchmarks test_ci test_docs test_house test_package
    """,
    UNIT: """
        agent/disk/test_files agent/disk/test_openzip agent/disk/test_pages
        agent/docker/test_shapes agent/docker/test_too_deep agent/docker/test_upstream_login
        agent/image/test_buildsteps agent/image/test_tree agent/image/test_wheels_argv
        agent/lane/test_commit agent/lane/test_ports agent/ledger/test_digest agent/machine/test_loopback
        agent/rows/test_rows agent/rows/test_rowsplit agent/rows/test_sparserows
        agent/source/test_safetensors agent/store/test_pipprogress
        plugin/test_goals plugin/test_last_line plugin/test_stagings
    """,
}
_LAYER = {path: layer for layer, paths in _OF.items() for path in paths.split()}


def layer(path: str) -> str:
    """The layer of a file, or that of a folder's files which are not named by themselves; `path` is below tests/."""
    whole = PurePosixPath(path.removesuffix(".py"))
    return next((_LAYER[str(one)] for one in (whole, *whole.parents) if str(one) in _LAYER), UNIT)


def named() -> tuple[str, ...]:
    """Every path that has a layer of its own."""
    return tuple(_LAYER)


def only(words: Sequence[str]) -> str:
    """The one layer that a command line of pytest asks for by `-m`; "" when it asks for more, or for something else."""
    asked = next((words[at + 1] for at in reversed(range(len(words) - 1)) if words[at] == "-m"), "")
    return one if (one := asked.removesuffix(NOT_LONG)) in LAYERS else ""


@contextmanager
def no_process() -> Iterator[list[str]]:
    """Refuse every process that is started meanwhile, with an AssertionError; yields what they were."""
    refused: list[str] = []

    def refuse(*what: Any, **_: Any) -> NoReturn:
        refused.append(" ".join(str(word) for word in what[1:2]) or "a copy of itself")
        raise AssertionError(f"a test of the layer unit starts {refused[-1]}")

    with (
        mock.patch.object(subprocess.Popen, "_execute_child", refuse),
        mock.patch.multiple(os, fork=refuse, forkpty=refuse, posix_spawn=refuse, posix_spawnp=refuse, system=refuse),
    ):
        yield refused
