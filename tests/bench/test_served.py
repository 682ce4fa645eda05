from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.bench.served import identify, read
from sparkbuild.core.errors import NotReadyError
from tests.engine import Engine, free_port

MODELS = {"data": [{"id": "other", "owned_by": "x"}, {"id": "m", "owned_by": "vllm"}]}


@pytest.mark.parametrize(
    ("told", "version", "source"),
    [
        ({"/version": {"version": "0.33.0"}, "/props": None}, "0.33.0", "/version"),
        ({"/version": None, "/props": {"build_info": "b123"}}, "b123", "/props"),
        ({"/version": {"version": ""}, "/props": {}}, "", "/v1/models"),
        ({"/version": [], "/props": "x"}, "", "/v1/models"),
        ({"/version": None, "/get_server_info": []}, "", "/v1/models"),
    ],
)
def test_where_the_version_comes_from(told: dict[str, Any], version: str, source: str):
    engine = read("http://h", "m", MODELS, told)
    assert (engine.version, engine.source, engine.name) == (version, source, "vllm")
    assert engine.served_ids == ("other", "m")


def test_sglang_is_known_by_its_own_page_whatever_its_owner_is_called():
    engine = read("http://h", "m", MODELS, {"/get_server_info": {"version": "0.5.9"}})
    assert (engine.name, engine.version, engine.source) == ("sglang", "0.5.9", "/get_server_info")


@pytest.mark.parametrize(
    ("models", "found"),
    [
        ({"data": [{"id": "other"}]}, "other"),
        ({"data": []}, "no model"),
        ({"data": "x"}, "no model"),
        ({"data": ["m"]}, "no model"),
        (["m"], "no model"),
        (None, "no model"),
    ],
)
def test_another_model(models: Any, found: str):
    with pytest.raises(NotReadyError) as caught:
        read("http://h", "m", models, {})
    assert caught.value.what == "http://h does not serve m"
    assert (caught.value.found, caught.value.wanted) == (found, "m")


def test_the_real_engine(engine: Engine):
    found = identify(engine.base_url + "/", engine.model_id)
    assert found.served_ids == (engine.model_id,)
    assert found.base_url == engine.base_url
    assert (found.name, found.source) == ("llamacpp", "/props")
    assert found.version


def test_the_real_engine_asked_for_another_model(engine: Engine):
    with pytest.raises(NotReadyError, match="does not serve big-model"):
        identify(engine.base_url, "big-model")


def test_nobody_listens():
    with pytest.raises(NotReadyError, match="the lane does not answer"):
        identify(f"http://127.0.0.1:{free_port()}", "m")
