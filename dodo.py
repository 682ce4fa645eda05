"""The tasks of this workspace, and of this repository's own tests."""

from __future__ import annotations

from typing import Any

from sparkbuild.plugin.tasks import *  # noqa: F403 - doit finds tasks by name in this module
from sparkbuild.plugin.tasks import Proc, config

DOIT_CONFIG = config()


def task_test() -> dict[str, Any]:
    """Run the tests of sparkbuild itself (arguments go to pytest: doit test tests/core)."""
    return {"actions": [Proc(["python", "-m", "pytest"], show=True)], "pos_arg": "args"}
