"""Templates: filled in strictly, and every mistake in one names where it is and what may stand there."""

import subprocess
import sys
from typing import Any

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.template import fill

VALUES: dict[str, Any] = {"model_id": "m", "port": 8000, "staged": {"weights": "/srv/w"}, "image": {}}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{ staged.weights }}/model.gguf", "/srv/w/model.gguf"),
        ("--port={{ port + 1 }}", "--port=8001"),
        ("{% if port == 8000 %}default{% endif %}", "default"),
        ('{"enable_thinking": false}', '{"enable_thinking": false}'),
        ("{{ model_id }} <&> \"'", "m <&> \"'"),
        ("{{ model_id }}\n", "m\n"),
    ],
)
def test_filled(text: str, filled: str) -> None:
    assert fill(text, VALUES, "here") == filled


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ modelid }}", "'modelid' is undefined"),
        ("{{ staged.weight }}", "has no attribute 'weight'"),
        ("{{ staged.weights.path.more }}", "has no attribute 'path'"),
        ("{{ port", "unexpected end of template"),
        ("{% include 'x' %}", "no loader"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ model_id + port }}", "can only concatenate str"),
        ("{{ staged.weights() }}", "not callable"),
    ],
)
def test_a_mistake_is_one_error_with_the_names_that_are_known(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        fill(text, VALUES, "recipes/demo/recipe.toml")
    error = raised.value
    assert error.where == "recipes/demo/recipe.toml"
    assert text in error.found
    assert says in error.found
    assert error.wanted == "names: image (empty), model_id, port, staged.weights"


def test_a_text_without_a_template_does_not_load_the_engine() -> None:
    code = "import sys; from sparkbuild.core.template import fill; fill('x', {}, ''); sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
