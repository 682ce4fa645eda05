"""Shared by all tests: their layers, and the engine, harness and model, made once per run (see tests/engine.py)."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests import engine as real, layers
from tests.rack import engines

TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--engine`: what SPARKBUILD_RACK_ENGINE says, for one run."""
    parser.addoption("--engine", choices=tuple(engines.KINDS), help="the docker engine of the rack's nodes")


def pytest_configure(config: pytest.Config) -> None:
    """Make the option known to what a test starts, too; and what `./doitw test` said of itself to nobody."""
    os.environ.pop("SPARKBUILD_CALLED_AS", None)
    if name := config.getoption("--engine"):
        os.environ[engines.VARIABLE] = name
    if _room_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")  # where pytest makes the tmp_path of tests


def _room_in_memory() -> bool:
    """4 GB free in memory's file system, which is what all tests take, and as much again for what they start."""
    try:
        disk, memory = os.statvfs("/dev/shm"), Path("/proc/meminfo").read_text()
    except OSError:
        return False
    left = int(memory.partition("MemAvailable:")[2].split()[0]) << 10
    return disk.f_bavail * disk.f_frsize > 4 << 30 and left > 8 << 30


def _layer(path: Path) -> str:
    return layers.layer(str(path.relative_to(TESTS)))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m unit` does not even import what is in another layer."""
    asked = layers.only(["-m", config.option.markexpr])
    other = bool(asked) and collection_path.name.startswith("test_") and _layer(collection_path) != asked
    return True if other else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the layer of its file, before `-m` is looked at."""
    for item in items:
        item.add_marker(_layer(item.path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """A fixture of a test of the layer `unit` starts no process. What its end takes down may be of other tests."""
    with _refusing(item):
        return (yield)


@contextmanager
def _refusing(item: pytest.Item) -> Iterator[None]:
    if item.get_closest_marker(layers.UNIT) is None:
        yield
        return
    with layers.no_process() as refused:
        try:
            yield
        finally:
            item.stash.setdefault(_REFUSED, []).extend(refused)


_REFUSED = pytest.StashKey[list[str]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Nor does the test itself. One that was refused, and somebody made nothing of it, counts too."""
    with _refusing(item):
        result = yield
    if refused := item.stash.get(_REFUSED, []):
        pytest.fail(f"a test of the layer unit started {', '.join(refused)}: tests/layers.py says what is in which")
    return result


def pytest_report_header() -> str:
    """Which engine the rack's tests are about to try."""
    name = engines.chosen()
    return f"rack engine {name}: {engines.versions(name)}"


# Of every test with generated input that does not say otherwise. `--hypothesis-profile=long` is what .ci/long runs. The
# machine is never ours alone, so that time is bounded where it matters (tests/parsers/near.py) and not by a deadline.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("landing", max_examples=100, deadline=None, suppress_health_check=_SLOW)
# Inputs are made from a number (tests/parsers/near.py): shrinking, which takes minutes, could shorten nothing.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
settings.register_profile("long", max_examples=10_000, deadline=None, suppress_health_check=_SLOW, phases=_PHASES)
settings.load_profile("landing")


@pytest.fixture(scope="session")
def test_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where made environments and the model are kept."""
    named = os.environ.get("SPARKBUILD_TEST_CACHE")
    return Path(named).resolve() if named else tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def engine_python(test_cache: Path) -> Path:
    """The Python of images/llamacpp."""
    return real.environment_python("llamacpp", test_cache)


@pytest.fixture(scope="session")
def harness_python(test_cache: Path) -> Path:
    """The Python of images/harness."""
    least = (3, 11)
    if real.base_python(least) is None:
        pytest.skip("the harness needs Python 3.11 or newer")
    return real.environment_python("harness", test_cache, least)


@pytest.fixture(scope="session")
def model_file(test_cache: Path) -> Path:
    """The demo's GGUF file."""
    return real.model_gguf(test_cache)


@pytest.fixture(scope="session")
def engine(engine_python: Path, model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[real.Engine]:
    """A running engine, shared: tests may ask it anything, but must not end it."""
    running = real.start_engine(engine_python, model_file, tmp_path_factory.mktemp("engine") / "engine.log")
    yield running
    running.stop(signal.SIGTERM)
