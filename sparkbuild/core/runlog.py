"""The record of runs: one folder each under `.sparkbuild/runs`, a JSONL log of what was done and why, task logs."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from sparkbuild.agent.wire.printable import printable
from sparkbuild.core.writable import writing

KEEP = 50  # runs


class RunLog:
    """One run of doit. The folder is made with the first entry, so a run that does nothing leaves nothing."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder
        self.name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
        self.folder = folder / self.name
        self._guard = threading.Lock()

    def task_log(self, task: str) -> Path:
        """The log file of one task in this run."""
        return self.folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', task)}.log"

    def write(self, event: str, **fields: Any) -> None:
        """Append one entry; flushed at once, so that a killed run keeps it."""
        entry = {"time": round(time.time(), 3), "run": self.name, "event": event, **fields}
        with self._guard, writing(self.folder):
            if not self.folder.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._prune()
            with (self.folder / "run.jsonl").open("a", encoding="utf-8") as file:
                file.write(printable(json.dumps(entry, ensure_ascii=False)) + "\n")

    def _prune(self) -> None:
        runs = sorted(path for path in self._runs.iterdir() if path.is_dir())
        for old in runs[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)
