"""What every benchmark does first: its options with a smallest form, its needs before anything is begun, its commit."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import engine  # noqa: E402 - the repository is on the path now
from tests.rack import needs as rack_needs  # noqa: E402 - as above

CACHE = Path(os.environ.get("SPARKBUILD_TEST_CACHE") or ROOT / ".sparkbuild/ci/cache")


def options(
    parser: argparse.ArgumentParser,
    smallest: Mapping[str, object],
    *,
    rack: bool = False,
    nas: bool = False,
    programs: Sequence[str] = (),
) -> argparse.Namespace:
    """The options given; with `--smallest` those of the form that only shows that all of it runs. Ends this program,
    exit code 2, when something is not here that it needs: a `rack` (root, docker), a `nas`, programs.
    """
    parser.add_argument("--smallest", action="store_true", help="the least that runs all of it; its figures are none")
    given = parser.parse_args()
    if given.smallest:
        vars(given).update(smallest)
    problems = [f"no {name} on PATH" for name in programs if shutil.which(name) is None]
    if rack and (problem := rack_needs.lacking()):
        problems.append(problem)
    if nas and not problems and (problem := rack_needs.lacking_nas() or _lacking_nas_server()):
        problems.append(problem)
    if problems:
        print(f"{parser.prog}: {'; '.join(problems)}", file=sys.stderr)
        sys.exit(2)
    print(f"measured at commit {commit()}, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    return given


def commit() -> str:
    """The commit of this repository, with a mark when files differ from it; "unknown" outside of git."""
    argv = ["git", "-c", f"safe.directory={ROOT}", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _lacking_nas_server() -> str:
    """The NAS of a rack needs a package that users do not get: an environment of its own has it, made here once."""
    if importlib.util.find_spec("mfusepy"):
        return ""
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        python = engine.locked_python("rack", ROOT / "requirements-rack.lock", sys.executable, CACHE)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"the NAS needs what requirements-rack.lock names, which could not be installed: {error}"
    os.environ["SPARKBUILD_RACK_PYTHON"] = str(python)
    return ""
