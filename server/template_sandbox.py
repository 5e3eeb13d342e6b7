"""Jinja as chat templates know it, within limits of size and time."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from server.errors import OverLimit


@dataclass(frozen=True)
class RenderLimits:
    """How much one rendering may take.

    Attributes:
        characters: length of the output, and of any string or list on the way to it.
        deadline: on the monotonic clock, in seconds.
    """

    characters: int
    deadline: float

    def check_time(self) -> None:
        """Raises OverLimit when it is too late."""
        if time.monotonic() > self.deadline:
            raise OverLimit("chat.messages takes the model's template too long to render")

    def check_size(self, size: int) -> None:
        """Raises OverLimit for a length that is too large."""
        if size > self.characters:
            raise OverLimit(
                f"chat.messages makes the model's template exceed {self.characters} characters"
            )

    def check(self, value: object) -> None:
        """Checks the clock, and the size of a value."""
        self.check_time()
        if isinstance(value, (str, bytes, list, tuple, dict)):
            self.check_size(len(value))
        elif isinstance(value, int):
            self.check_size(value.bit_length())


_WHILE_COMPILING = RenderLimits(characters=1 << 16, deadline=float("inf"))


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment in which transformers renders chat templates, with limits added.

    Jinja's sandbox keeps a template from Python's internals but limits neither time nor memory.
    Here the operations that can grow a value are checked, and so is the clock in every turn of a
    loop and every call.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
        )
        self._active = threading.local()
        self.filters |= {"tojson": _to_json, _IDENTITY: lambda value: value}
        self.filters = {name: self._limited(entry) for name, entry in self.filters.items()}
        del self.globals["lipsum"]
        self.globals["dict"] = lambda *args, **kwargs: dict(*args, **kwargs)
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda form: datetime.now().strftime(form)

    @contextmanager
    def within(self, limits: RenderLimits) -> Iterator[None]:
        """Renderings of this thread keep to `limits`."""
        self._active.limits = limits
        try:
            yield
        finally:
            del self._active.limits

    def tick(self) -> None:
        """Called in every turn of a loop and by every macro; as every call, it is checked."""

    def concatenate(self, *values: object) -> str:
        """The operator `~`."""
        return "".join(map(str, values))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator whose result may be much larger than its operands."""
        if operator == "*":
            self._limits.check_size(_repeated_length(left, right))
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            self._limits.check_size(left.bit_length() * abs(right))
        result = super().call_binop(context, operator, left, right)
        self._limits.check(result)
        return result

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call of a function, method or macro."""
        return self._limited(functools.partial(super().call, context, function))(*args, **kwargs)

    @property
    def _limits(self) -> RenderLimits:
        """Those of the rendering that this thread is at."""
        limits: RenderLimits = getattr(self._active, "limits", _WHILE_COMPILING)
        return limits

    def _limited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, refusing large numbers (widths, counts) and large results."""

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            for argument in (*args, *kwargs.values()):
                if isinstance(argument, int):
                    self._limits.check_size(abs(argument))
            result = function(*args, **kwargs)
            self._limits.check(result)
            return result

        return limited

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        _Instrument().visit(source)
        return super()._generate(source, *args, **kwargs)


class _Instrument(NodeTransformer):
    """Puts the checks that the sandbox has no hook for into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's name
        return self._with_tick(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._with_tick(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("concatenate", node.nodes, node.lineno)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        # An argument of None is the content of the block.
        node.filter = nodes.Filter(node.filter, _IDENTITY, [], [], None, None, lineno=node.lineno)
        return node

    def _with_tick(self, node: nodes.For | nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick", [], node.lineno), lineno=node.lineno))
        return node


class _GenerationBlock(Extension):
    """`{% generation %}`, by which templates mark what a model is trained on: only its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_IDENTITY = "within_limits"  # the filter that changes nothing, but is checked like all


def _call(method: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    """A call of a method of the environment."""
    function = nodes.EnvironmentAttribute(method, lineno=line)
    return nodes.Call(function, arguments, [], None, None, lineno=line)


def _repeated_length(left: object, right: object) -> int:
    """Length of a product of a string or list and a number; 0 for other products."""
    if isinstance(left, int):
        left, right = right, left
    if isinstance(left, (str, bytes, list, tuple)) and isinstance(right, int):
        return len(left) * right
    return 0


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: jinja2's own would escape for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
