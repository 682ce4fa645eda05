"""Fixtures shared by all tests: the real engine, harness and model, made once per run (see tests/engine.py)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests import engine as real
from tests.rack import engines


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--engine`: what SPARKBUILD_RACK_ENGINE says, for one run."""
    parser.addoption("--engine", choices=tuple(engines.KINDS), help="the docker engine of the rack's nodes")


def pytest_configure(config: pytest.Config) -> None:
    """Make the option known to what a test starts, too; and what `./doitw test` said of itself to nobody."""
    os.environ.pop("SPARKBUILD_CALLED_AS", None)
    if name := config.getoption("--engine"):
        os.environ[engines.VARIABLE] = name


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
