"""The Jinja2 sandbox of templates: no files, no unsafe attributes, bounded work.

Every text or list that a template makes is measured: what would become too large is refused before
it is made. Turns of loops, calls and made characters are counted for one part of one mail.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import update_wrapper
from string import Formatter
from typing import Any, TypeVar, cast

import jinja2
from jinja2 import nodes
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from penstock.domains.mail.check import BODY_BYTES_MAX

T = TypeVar("T")

RANGE_MAX = 10_000  # Items of one range(); nobody reads a mail with more lines.
STEPS_MAX = 20_000  # Turns of loops and calls in one part: 0.2 s of CPU time if all are macros.
OUTPUT_LENGTH_MAX = BODY_BYTES_MAX  # More would be refused anyway.
WIDTH_MAX = 1_000  # Of padding, and of a row of `batch`; a line of a mail has 998 bytes.
# Of all texts that one part makes on its way: a text that passes 16 filters may be as long as the
# longest body.
MADE_LENGTH_MAX = 16 * OUTPUT_LENGTH_MAX
MEASURED_MAX = 500_000  # Values in lists, counted each time that one is made; bounds CPU time.
NUMBER_BITS_MAX = 256  # Of an operand of * and **.
POWER_MAX = 64

# Filters, and methods of texts and numbers, that make as much as a number says.
PADDING = frozenset(
    {
        "batch", "center", "expandtabs", "indent", "ljust", "rjust", "round", "slice", "to_bytes",
        "tojson", "zfill",
    }
)  # fmt: skip
# Those that insert a text many times.
INSERTING = frozenset(
    {"expandtabs", "indent", "join", "replace", "translate", "urlize", "wordwrap"}
)

# Names that no template can write, because of their space.
_COUNTED = "count turns"
_JOINED = "join texts"
_MEASURED = "measure values"

_CONVERSION = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|[0-9]*)(?:\.(\*|[0-9]*))?")
_NUMBER = re.compile(r"[0-9]+")


@dataclass(slots=True)
class Budget:
    """What one part may still do: turns of loops and calls, and texts and lists that it makes."""

    steps: int = STEPS_MAX
    characters: int = MADE_LENGTH_MAX
    values: int = MEASURED_MAX

    def spend_step(self) -> None:
        """Count a turn of a loop or a call."""
        self.steps -= 1
        if self.steps < 0:
            raise jinja2.TemplateRuntimeError(f"over {STEPS_MAX} turns of loops and calls")

    def spend_text(self, length: int) -> None:
        """Count a text that was made."""
        self.characters -= length
        if self.characters < 0:
            raise _too_long()

    def spend_value(self) -> None:
        """Count a value that was measured."""
        self.values -= 1
        if self.values < 0:
            raise jinja2.TemplateRuntimeError(f"over {MEASURED_MAX} values in lists")


_budget: ContextVar[Budget] = ContextVar("budget of a template")


@contextmanager
def budgeted() -> Generator[None]:
    """Give what is compiled or rendered in this block a budget of its own."""
    token = _budget.set(Budget())
    try:
        yield
    finally:
        _budget.reset(token)


class Sandbox(ImmutableSandboxedEnvironment):
    """No loader, so no files; no attribute that leads out of the values; bounded work."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, *, autoescape: bool) -> None:
        super().__init__(autoescape=autoescape, undefined=jinja2.StrictUndefined, cache_size=0)
        # Their types allow the built-in functions only.
        filters = cast("dict[str, Callable[..., Any]]", self.filters)
        filters |= {name: _bounded(name, each) for name, each in filters.items()}
        filters |= {_COUNTED: _count_turns, _JOINED: _join_texts, _MEASURED: _measure}
        cast("dict[str, object]", self.globals).update(range=_bounded_range, namespace=_Namespace)
        del self.globals["lipsum"]  # Makes text of any length.
        self.binop_table |= {"+": _sum, "*": _product, "**": _power, "%": _modulo}

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Join what macros and blocks have buffered."""
        listed = list(pieces)
        length = sum(map(len, listed))
        _check_length(length)
        _budget.get().spend_text(length)
        return "".join(listed)

    def compile_bounded(self, source: str) -> jinja2.Template:
        """Compile a source in which every loop and every text is counted."""
        tree = self.parse(source)
        _refuse_uncounted(tree)
        bounded = _Bounder().visit(tree)
        bounded.set_environment(self)
        with budgeted():  # What is constant is evaluated now.
            return self.from_string(bounded)

    def call(self, context: Context, obj: object, /, *args: object, **kwargs: object) -> object:
        _budget.get().spend_step()
        owner: object = getattr(obj, "__self__", None)
        if isinstance(owner, str | bytes | int):
            name: str = getattr(obj, "__name__", "")
            args = tuple(_read(name, each) for each in args)
            _check_use(name, owner, (*args, *kwargs.values()))
        return _made(super().call(context, obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return `str.format` of a text, which checks what it makes."""
        formats = super().wrap_str_format(value)
        if formats is None:
            return None

        def bounded(*args: Any, **kwargs: Any) -> str:
            _check_format(value.__self__, (*args, kwargs))
            return formats(*args, **kwargs)

        return update_wrapper(bounded, formats)


class _Namespace(Namespace):
    """Shows nothing of its values: those that refer to each other may be long without end."""

    def __repr__(self) -> str:
        return "<Namespace>"


# ---------------------------------------------------------------------------------- the source


def _refuse_uncounted(tree: nodes.Template) -> None:
    """Refuse what cannot be counted or reads other files."""
    for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        raise jinja2.TemplateSyntaxError("a template cannot use another one", node.lineno)
    for loop in tree.find_all(nodes.For):
        if loop.recursive:
            raise jinja2.TemplateSyntaxError("a loop cannot be recursive", loop.lineno)


class _Bounder(NodeTransformer):
    """Lets loops count their turns, and measures texts and lists that a template makes."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  Jinja2 finds it by its name.
        self.generic_visit(node)
        node.iter = _filtered(cast("nodes.Expr", node.iter), _COUNTED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _MEASURED)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _MEASURED)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return node if node.ctx != "load" else _filtered(node, _MEASURED)


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _count_turns(values: Iterable[object]) -> Iterator[object]:
    budget = _budget.get()
    for value in values:
        budget.spend_step()
        yield value


@jinja2.pass_eval_context
def _join_texts(eval_context: EvalContext, values: Sequence[object]) -> str:
    """Join values as the operator ~ does."""
    _check_length(_size(values))
    return _made(markup_join(values) if eval_context.autoescape else str_join(values))


def _measure(value: object) -> object:
    return _made(value)


# ------------------------------------------------------------------------ filters and operators


def _bounded(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that refuses what would become too large."""
    passed = 1 if hasattr(filter_, "jinja_pass_arg") else 0  # An environment or a context.

    def bounded(*args: Any, **kwargs: Any) -> Any:
        value, *others = (_read(name, each) for each in args[passed:])
        if name == "format":
            _check_conversions(value, (*others, kwargs))
        _check_use(name, value, (*others, *kwargs.values()))
        return _made(filter_(*args[:passed], value, *others, **kwargs))

    return update_wrapper(bounded, filter_)


def _read(name: str, value: Any) -> Any:
    """Return a value that can be measured: what is joined may be the result of `map`."""
    if name in INSERTING and isinstance(value, Iterator):
        return list(cast("Iterator[object]", value))
    return value


def _check_use(name: str, value: object, given: Sequence[object]) -> None:
    """Refuse a filter or a method whose result would be too large."""
    if name in PADDING and any(isinstance(each, int) and each > WIDTH_MAX for each in given):
        raise jinja2.TemplateRuntimeError(f"{name} with a number over {WIDTH_MAX}")
    if name == "replace":
        _check_replace(value, given)
    elif name in INSERTING:
        inserted = max((_inserted(name, each) for each in given), default=0)
        size = _size(value)
        _check_length(size + (1 + size) * inserted, name)


def _check_replace(value: object, given: Sequence[object]) -> None:
    if len(given) < 2:
        return  # Jinja2 or Python refuses it.
    old, new = str(given[0]), str(given[1])
    text = str(value)
    _check_length(len(text) + text.count(old) * len(new), "replace")


def _inserted(name: str, value: object) -> int:
    if isinstance(value, int):
        return max(0, value) if name in PADDING else 0
    return _size(value)


def _made(value: T) -> T:
    """Count what a filter, a call or an operator has made."""
    made: object = value
    if isinstance(made, str | bytes):
        _budget.get().spend_text(len(made))
    elif isinstance(made, list | tuple | dict | set):
        _check_length(_size(cast("object", made)))
    return value


def _bounded_range(*bounds: int) -> range:
    values = range(*bounds)
    if len(values) > RANGE_MAX:
        raise jinja2.TemplateRuntimeError(f"a range of over {RANGE_MAX}")
    return values


def _sum(left: object, right: object) -> object:
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        _check_length(len(cast("Sequence[object]", left)) + len(cast("Sequence[object]", right)))
    return _made(ImmutableSandboxedEnvironment.default_binop_table["+"](left, right))


def _product(left: object, right: object) -> object:
    for one, other in ((left, right), (right, left)):
        _check_number(one)
        if isinstance(one, Sequence) and isinstance(other, int):
            length = _size(cast("object", one)) * other
            if length > OUTPUT_LENGTH_MAX:
                raise jinja2.TemplateRuntimeError("a product that is too long")
    return _made(ImmutableSandboxedEnvironment.default_binop_table["*"](left, right))


def _power(left: object, right: object) -> object:
    _check_number(left)
    if isinstance(right, int) and right > POWER_MAX:
        raise jinja2.TemplateRuntimeError(f"a power above {POWER_MAX}")
    return ImmutableSandboxedEnvironment.default_binop_table["**"](left, right)


def _modulo(left: object, right: object) -> object:
    if isinstance(left, str | bytes):
        _check_conversions(left, right)
    return _made(ImmutableSandboxedEnvironment.default_binop_table["%"](left, right))


def _check_number(value: object) -> None:
    if isinstance(value, int) and value.bit_length() > NUMBER_BITS_MAX:
        raise jinja2.TemplateRuntimeError("a number that is too large")


# ------------------------------------------------------------------------------ formatted texts


def _check_conversions(text: object, values: object) -> None:
    """Check a text such as `%-10s` and what fills it in."""
    form = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    for width, precision in _CONVERSION.findall(form):
        for number in (width, precision):
            if number == "*":
                raise jinja2.TemplateRuntimeError("format with a width that is not written out")
            _check_width(number)
    _check_length(len(form) + form.count("%") * _size(values), "format")


def _check_format(text: str, values: object) -> None:
    """Check a text such as `{:>10}` and what fills it in."""
    fields = 0
    for _, name, spec, _ in Formatter().parse(text):
        fields += name is not None
        if "{" in (spec or ""):
            raise jinja2.TemplateRuntimeError("format with a width that is not written out")
        for number in _NUMBER.findall(spec or ""):
            _check_width(number)
    _check_length(len(text) + fields * _size(values), "format")


def _check_width(number: str) -> None:
    if len(number.lstrip("0")) > len(str(WIDTH_MAX)) or int(number or 0) > WIDTH_MAX:
        raise jinja2.TemplateRuntimeError(f"format with a number over {WIDTH_MAX}")


# ----------------------------------------------------------------------------------------- sizes


def _size(value: object) -> int:
    """Return how long a value is as text, roughly; each part of a list is counted."""
    if isinstance(value, str | bytes):
        return len(value)
    budget = _budget.get()
    total = 0
    left = [value]
    while left:
        each: Any = left.pop()
        budget.spend_value()
        total += len(each) if isinstance(each, str | bytes) else 1
        if isinstance(each, Mapping):
            left.extend(cast("Mapping[object, object]", each).keys())
            left.extend(cast("Mapping[object, object]", each).values())
        elif isinstance(each, list | tuple | set | frozenset):
            left.extend(cast("Iterable[object]", each))
        elif isinstance(each, range):
            total += len(str(each.stop)) * len(each)
    return total


def _check_length(length: int, name: str | None = None) -> None:
    if length > MADE_LENGTH_MAX:
        raise _too_long(name)


def _too_long(name: str | None = None) -> jinja2.TemplateRuntimeError:
    prefix = "" if name is None else f"{name}: "
    return jinja2.TemplateRuntimeError(
        f"{prefix}over {MADE_LENGTH_MAX} characters on the way to the text"
    )
