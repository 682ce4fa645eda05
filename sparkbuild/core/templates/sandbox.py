"""The jinja2 that templates get. A recipe is often somebody else's: to plan it must run none of its code.

So there are no globals but our own, few filters and tests, all written down here; unknown names are errors; and what
multiplies a text is bounded or refused before it is done: `'x' * 3 * 10**8` would take 300 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, Undefined
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import missing

from sparkbuild.core.templates.errors import Problem, meant_by

RESULT_LIMIT = 1 << 17  # characters: the kernel takes no longer word in a command line
NO_VALUE = "may not stand in a value"  # ends what is said of a node that may stand in a whole file alone
_GREATEST = 1 << 63
_FILTERS = ("default", "d", "first", "float", "int", "last", "length", "lower", "string", "trim", "upper")
_LONG_FILTERS = ("dictsort", "indent", "items", "list", "reverse", "sort", "tojson", "unique")
_TESTS = (
    "defined", "undefined", "none", "string", "number", "integer", "boolean", "true", "false", "mapping", "sequence",
    "odd", "even", "divisibleby", "in", "eq", "==", "ne", "!=", "lt", "<", "le", "<=", "gt", ">", "ge", ">=",
)  # fmt: skip


class UnknownNameError(Exception):
    """A name that a template uses and nobody knows. `meant` is one that is, or ""."""

    def __init__(self, problem: str, meant: str) -> None:
        """Keep both."""
        super().__init__(problem)
        self.meant = meant


class Sandbox(ImmutableSandboxedEnvironment):
    """For text that is no HTML: command lines, paths, settings, Dockerfiles. `long`: one that may loop and call the
    methods of texts and tables, which only a process with limits may run.
    """

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, values: Mapping[str, Any], *, long: bool) -> None:
        """An environment for one template that sees `values`."""
        # not optimized: constants would be folded, and so be multiplied, while a template is only read
        super().__init__(
            undefined=_undefined(values), autoescape=False, keep_trailing_newline=True, cache_size=0, optimized=False
        )
        self._long = long
        self.globals = {"range": _range} if long else {}
        self.filters = {name: FILTERS[name] for name in (*_FILTERS, *(_LONG_FILTERS if long else ()))}
        self.filters |= {"join": _join, "replace": _replace}
        self.tests = {name: TESTS[name] for name in _TESTS}

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """`*`, `**` and `%`: of numbers, and of none that grow without end."""
        del context
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError(f"`{operator}` is for numbers: repeating and formatting a text has no bounds")
        if operator == "**" and (abs(left) > _GREATEST or abs(right) > 64):  # 64 bits to the 64th: 4096 bits
            raise SecurityError("a power of more than 64 bits")
        result = self.binop_table[operator](left, right)
        if isinstance(result, complex) or abs(result) > _GREATEST:
            raise SecurityError("a number of more than 64 bits")
        return result

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The item of a table. What is a Python object otherwise has attributes only where methods may be called."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        if self._long or isinstance(obj, Undefined):
            return super().getattr(obj, attribute)
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """As `getattr`; also an item of a list by its number."""
        if self._long or isinstance(obj, Undefined):
            return super().getitem(obj, argument)
        try:
            return obj[argument]
        except (KeyError, IndexError, TypeError):
            return self.undefined(obj=obj, name=argument)


def _undefined(values: Mapping[str, Any]) -> type[StrictUndefined]:
    class Unknown(StrictUndefined):
        """Says which table has no such name, and which name it has."""

        def _fail_with_undefined_error(self, *_args: Any, **_kwargs: Any) -> Any:
            name = str(self._undefined_name)
            if self._undefined_obj is missing:
                raise UnknownNameError(f"there is no `{name}`", meant_by(name, values, ""))
            of = self._undefined_obj
            tables = [key for key, value in values.items() if value is of and isinstance(value, Mapping)]
            if tables:
                raise UnknownNameError(f"there is no `{name}` in `{tables[0]}`", meant_by(name, values, tables[0]))
            kind = {str: "a text", int: "a number", float: "a number"}.get(type(of), "that")
            raise UnknownNameError(f"{kind} has no `{name}`", "")

        # what a template may do with a name, and jinja2's own class binds before it can be overridden
        __iter__ = __str__ = __len__ = __eq__ = __ne__ = __bool__ = __hash__ = _fail_with_undefined_error
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __call__ = _fail_with_undefined_error
        __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _fail_with_undefined_error
        __pow__ = __rpow__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _fail_with_undefined_error
        __neg__ = __pos__ = __getitem__ = __int__ = __float__ = _fail_with_undefined_error

        def __getattr__(self, name: str) -> Any:
            if name[:2] == "__":
                raise AttributeError(name)
            return self._fail_with_undefined_error()

    return Unknown


def bounded(size: int, limit: int = RESULT_LIMIT) -> None:
    """Raise SecurityError for a text of too many characters."""
    if size > limit:
        raise SecurityError(f"a text of more than {limit} characters")


def problem_of(error: Exception, *, long: bool) -> Problem:
    """What an exception says of the template that was read or filled in when it came, and what may stand there."""
    if isinstance(error, TemplateSyntaxError):
        text = error.message or "it cannot be read"
        return Problem(text, error.lineno, wanted=_wanted(text, long=long))
    line, place = 1, error.__traceback__
    while place is not None:  # jinja2 writes the template's own lines into the traceback
        if place.tb_frame.f_code.co_filename == "<template>":
            line = place.tb_lineno
        place = place.tb_next
    if isinstance(error, UnknownNameError):
        return Problem(str(error), line, error.meant)
    if isinstance(error, RecursionError):
        return Problem("it is too deep", line, wanted="one of fewer levels")
    return Problem(
        str(error) or type(error).__name__, line, wanted=_BOUNDS if isinstance(error, SecurityError) else _SUM
    )


_BOUNDS = "names and texts as they are, and numbers of at most 64 bits"
_SUM = "an expression that has a value: numbers with numbers; `~` joins whatever it stands between"
_EXPRESSION = "an expression, as in {{ port }}; for braces as such: {{ '{{' }}, {{ '{%' }}, {{ '{#' }}"
_VALUE = "names, texts, numbers, sums, filters and `if`"


def _wanted(text: str, *, long: bool) -> str:
    """What may stand where a template cannot be read; `text` is what jinja2 or we say of it."""
    if text.startswith("No filter named"):
        return f"a filter: {', '.join(sorted((*_FILTERS, *(_LONG_FILTERS if long else ()), 'join', 'replace')))}"
    if text.startswith("No test named"):
        return f"a test: {', '.join(name for name in sorted(_TESTS) if name.isalpha())}"
    if text.endswith(NO_VALUE):
        return _VALUE
    return _EXPRESSION


def _join(value: Iterable[Any], between: str = "") -> str:
    pieces = [str(piece) for piece in value]
    bounded(sum(map(len, pieces)) + len(pieces) * len(between))
    return between.join(pieces)


def _replace(text: str, old: str, new: str) -> str:
    text, old, new = str(text), str(old), str(new)
    if not old:
        raise SecurityError("`replace` of nothing")
    bounded(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > 1000:
        raise SecurityError("a range of more than 1000 numbers")
    return numbers
