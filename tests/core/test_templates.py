"""Templates: filled in with their values alone, in bounds; a mistake names its line and what was meant."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.templates import long, value
from sparkbuild.core.templates.errors import TemplateError

VALUES: dict[str, Any] = {"model_id": "m", "port": 8000, "staged": {"weights": "/srv/w"}, "image": {}}
NAMES = "names: image (empty), model_id, port, staged.weights"


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{ staged.weights }}/model.gguf", "/srv/w/model.gguf"),
        ("{{ staged['weights'] }}", "/srv/w"),
        ("--port={{ port + 1 }}", "--port=8001"),
        ("{{ port * 2 - 1 }} {{ port % 3 }} {{ 2 ** 10 }} {{ port // 3 }}", "15999 2 1024 2666"),
        ("{% if port == 8000 %}default{% endif %}", "default"),
        ("{{ 'a' if port > 1 and not image else 'b' }}", "a"),
        ("{{ nothing | default('x') }} {{ nothing is defined }}", "x False"),
        ("{{ model_id | upper | replace('M', 'mm') }}{{ 'x' ~ port }}", "mmx8000"),
        ('{"enable_thinking": false}', '{"enable_thinking": false}'),
        ("{{ model_id }} <&> \"'", "m <&> \"'"),
        ("{{ model_id }}\n", "m\n"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
    ],
)
def test_filled(text: str, filled: str) -> None:
    assert value.fill(text, VALUES, "here") == filled


@pytest.mark.parametrize(
    ("text", "says", "line", "meant"),
    [
        ("{{ modelid }}", "there is no `modelid`", 1, "model_id"),
        ("{{ staged.weight }}", "there is no `weight` in `staged`", 1, "staged.weights"),
        ("{{ weights }}", "there is no `weights`", 1, "staged.weights"),
        ("a\nb {{ prot }}", "there is no `prot`", 2, "port"),
        ("{{ zzz }}", "there is no `zzz`", 1, ""),
        ("{{ zzz.more }}", "there is no `zzz`", 1, ""),
        ("{{ staged.weights.path.more }}", "a text has no `path`", 1, ""),
        ("{% if not zzz == 1 %}{% endif %}", "there is no `zzz`", 1, ""),
    ],
)
def test_a_mistake_is_one_error_with_its_line_and_what_was_meant(text: str, says: str, line: int, meant: str) -> None:
    with pytest.raises(TemplateError) as raised:
        value.fill(text, VALUES, "recipes/demo/recipe.toml")
    error = raised.value
    assert (error.where, error.line, error.text) == ("recipes/demo/recipe.toml", line, text)
    assert repr(text) in error.found
    assert says in error.found
    assert error.wanted == (f"did you mean `{meant}`? {NAMES}" if meant else NAMES)


@pytest.mark.parametrize(
    ("text", "says", "wanted"),
    [
        ("{{ port", "unexpected end of template", "for braces as such: {{ '{{' }}"),
        ('{{"a": 1}}', "expected token", "an expression, as in {{ port }}"),
        ("${#words[@]}", "Missing end of comment tag", "{{ '{#' }}"),
        ("{% port %}", "unknown tag 'port'", "{{ '{%' }}"),
        ("{{ 1 / 0 }}", "division by zero", "an expression that has a value"),
        ("{{ model_id + port }}", "can only concatenate str", "`~` joins"),
        ("{{ model_id | attr('x') }}", "No filter named 'attr'", "a filter: d, default, first"),
        ("{{ model_id is lowerr }}", "No test named 'lowerr'", "a test: boolean, defined"),
        ("{{ 'x' * 9 }}", "`*` is for numbers", "numbers of at most 64 bits"),
        ("{% for a in 'x' %}{% endfor %}", "`for` may not stand in a value", "names, texts, numbers, sums"),
    ],
)
def test_what_is_wanted_where_what_is_wrong_is_no_name(text: str, says: str, wanted: str) -> None:
    with pytest.raises(TemplateError) as raised:
        value.fill(text, VALUES, "recipes/demo/recipe.toml")
    assert says in raised.value.found
    assert wanted in raised.value.wanted
    assert "names: " not in raised.value.wanted


def test_braces_as_such_are_written_as_the_message_says() -> None:
    assert value.fill("{{ '{{' }} {{ '{%' }} {{ '{#' }} {{ '}}' }}", VALUES, "here") == "{{ {% {# }}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("RUN a\nRUN echo ${#words[@]}\n", "{{ '{#' }}"),
        ("{{ x | attr('y') }}", "a filter: d, default, dictsort"),
        ("{% for a in range(1000) %}" * 3 + "{% endfor %}" * 3, "loops over less"),
    ],
)
def test_what_is_wanted_in_a_whole_file(text: str, wanted: str) -> None:
    with pytest.raises(TemplateError) as raised:
        long.fill(text, VALUES, "images/x/Dockerfile.j2")
    assert wanted in raised.value.wanted
    assert "names: " not in raised.value.wanted


ESCAPES = [
    "{{ cycler.__init__.__globals__.os.popen('touch {mark}').read() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ model_id.__class__ }}",
    "{{ staged.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ '{0.__class__}' | format(1) }}",
    "{{ '{0.__class__.__base__}'.format(port) }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self }}",
    "{{ lipsum.__globals__ }}",
    "{{ namespace() }}",
    "{{ range(3) }}",
    "{{ staged.update({'weights': 1}) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_a_value_reaches_nothing_but_its_values(text: str) -> None:
    with pytest.raises(TemplateError):
        value.fill(text, VALUES, "here")


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'x' * 3 * 10 ** 8 }}",
        "{{ 3 * 'x' }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ 2.5 ** 10000 }}",
        "{{ 9 ** 9 ** 9 % 7 }}",
        "{{ 'x' | center(999999999) }}",
        "{{ 'x'.ljust(999999999) }}",
        "{% for a in 'xxxxxxxxxx' %}{% endfor %}",
        "{% set a = 'x' %}",
        "{% macro a() %}{{ a() }}{% endmacro %}",
        "{{ 'aaaa' | replace('', 'b') }}",
        "{{ '" + "a" * 500 + "' | replace('a', '" + "b" * 500 + "') }}",
        "{{ '" + "a" * 500 + "' | join('" + "b" * 500 + "') }}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{{ " + "not " * 3000 + "1 }}",
        "{{ " + "-" * 100 + "1 }}",
        "{{ " + "9" * 6000 + " ** 60 }}",
        "{" * 20_000,
    ],
)
def test_a_value_costs_no_time_and_no_memory(text: str) -> None:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(TemplateError) as raised:
        value.fill(text, VALUES, "here")
    assert len(str(raised.value)) < 2000
    assert time.process_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 << 10, "KiB"


def test_a_text_without_a_template_does_not_load_the_engine() -> None:
    code = "import sys; from sparkbuild.core.templates.value import fill; fill('x', {}, '')"
    done = subprocess.run([sys.executable, "-c", f"{code}; sys.exit('jinja2' in sys.modules)"], check=False)
    assert done.returncode == 0


# --- whole files -----------------------------------------------------------------------------------------------------


def test_a_file_may_loop_and_call_methods() -> None:
    text = "{% for name, place in staged.items() %}{{ loop.index }} {{ name.upper() }} {{ place }}\n{% endfor %}ä\n"
    assert long.fill(text, VALUES, "here") == "1 WEIGHTS /srv/w\nä\n"
    assert long.fill("{% for a in range(3) %}{{ a }}{% endfor %}", VALUES, "here") == "012"


def test_a_key_of_a_table_comes_before_its_methods() -> None:
    assert long.fill("{{ args.items }}", {"args": {"items": "3"}}, "here") == "3"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("one\n{{ staged.wieghts }}\n", "there is no `wieghts` in `staged`: {{ staged.wieghts }}"),
        ("one\n{% include 'x' %}", "`include`: a template sees no other file"),
        ("one\n{% for x %}", "expected token 'in'"),
    ],
)
def test_a_mistake_in_a_file_is_told_at_its_line(text: str, says: str) -> None:
    with pytest.raises(TemplateError) as raised:
        long.fill(text, VALUES, "images/x/Dockerfile.j2")
    assert raised.value.where == "images/x/Dockerfile.j2:2"
    assert says in raised.value.found
    assert ("did you mean `staged.weights`?" in raised.value.wanted) is ("wieghts" in text)


@pytest.mark.parametrize("text", [text for text in ESCAPES if text not in {"{{ range(3) }}", "{{ self }}"}])
def test_a_file_reaches_nothing_but_its_values(text: str, tmp_path: Path) -> None:
    with pytest.raises(TemplateError):
        long.fill(text.replace("{mark}", str(tmp_path / "mark")), VALUES, "here")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(999) %}" * 3 + "{% endfor %}" * 3,
        "{{ 'x'.ljust(10 ** 10) }}",
        "{{ 'x'.ljust(10 ** 7) }}",
        "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{{ 'x' * 10 ** 9 }}",
        "{% for a in range(10 ** 9) %}{% endfor %}",
    ],
)
def test_a_file_costs_no_time_and_no_memory_of_ours(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TemplateError) as raised:
        long.fill(text, VALUES, "here")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 << 10, "KiB"
    assert raised.value.where == "here:1"


def test_what_fills_in_a_file_sees_no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert long.fill("{{ port }}", VALUES, "here") == "8000"
