"""`python -m tests.fetch`: what the tests take from the network, fetched before they run, into SPARKBUILD_TEST_CACHE.

Engine, harness, model, and where a rack can be: what its lanes are made of, its NAS, and its docker engines. With
`--long` also what only long tests need: the system of arm64 nodes, and the engine for them.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import engine
from tests.rack import needs
from tests.rack.__main__ import main as rack
from tests.rack.lanes import make_store


def main() -> int:
    """Fetch what is not there yet. 2: no folder to keep it in was named."""
    named = os.environ.get("SPARKBUILD_TEST_CACHE")
    if not named:
        print("SPARKBUILD_TEST_CACHE names no folder to keep it in", file=sys.stderr)
        return 2
    cache = Path(named).resolve()
    code, racks = 0, not needs.lacking()
    with ThreadPoolExecutor(3) as pool:  # each waits for another's server, or for one pip
        jobs = [pool.submit(engine.environment_python, "llamacpp", cache), pool.submit(engine.model_gguf, cache)]
        if engine.base_python((3, 11)):
            jobs.append(pool.submit(engine.environment_python, "harness", cache, (3, 11)))
        if racks:
            jobs.append(pool.submit(make_store, cache))
        if racks and not needs.lacking_nas():
            lock = engine.ROOT / "requirements-rack.lock"
            jobs.append(pool.submit(engine.locked_python, "rack", lock, sys.executable, cache))
        if racks:
            code = rack(["engines"])
        for job in jobs:
            job.result()
    if racks and "--long" in sys.argv[1:]:
        engine.arm64_wheels("llamacpp", cache)
        code = code or rack(["arm64"])
    return code


if __name__ == "__main__":
    sys.exit(main())
