"""Host: the jinja2 environment of chat templates: no access to Python, and limits on work and output.

A template comes with the model, so it is not trusted (without a sandbox: CVE-2026-5760 in another engine). jinja2's
sandbox refuses attributes that begin with an underscore and changes to its arguments. Of work it limits only `range`,
so loop turns, calls, padding and output are limited here. Some ways to use time and memory remain: therefore the
templates of clients are rendered in a child process that may be killed (`client_template`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cache, wraps
from typing import Any, ClassVar

from jinja2 import Environment, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_STEPS = 1_000_000  # loop turns and calls of one rendering; the longest chats need thousands
MAX_OUTPUT_CHARS = 16 << 20
MAX_REPEAT = 1 << 16  # characters from `*`, or a number passed to a padding function such as ljust
WIDE = re.compile(r"\d{6}|\*|\{[^{}]*\{")  # in a format string: a width of six digits, or one from an argument


@dataclass(slots=True)
class Rendering:
    """One rendering. indices: message index by the message's `id`. message: index of the message whose turn it is."""

    indices: dict[int, int]
    message: int | None = None
    num_steps: int = 0

    @classmethod
    def of(cls, messages: list[dict[str, Any]]) -> "Rendering":
        return cls({id(message): i for i, message in enumerate(messages)})

    def text(self, template: Any, values: dict[str, Any]) -> str:
        """The rendered text; raises jinja2's `SecurityError` past MAX_STEPS or MAX_OUTPUT_CHARS."""
        token = _rendering.set(self)
        parts: list[str] = []
        length = 0
        try:
            for part in template.generate(values):
                parts.append(part)
                length += len(part)
                if length > MAX_OUTPUT_CHARS:
                    raise SecurityError(f"the template writes more than {MAX_OUTPUT_CHARS} characters")
        finally:
            _rendering.reset(token)
        return "".join(parts)

    def take_step(self) -> None:
        self.num_steps += 1
        if self.num_steps > MAX_STEPS:
            raise SecurityError(f"the template takes more than {MAX_STEPS} steps")


_rendering: ContextVar[Rendering] = ContextVar("rendering")


def _counted(items: Iterable[Any]) -> Iterator[Any]:
    rendering = _rendering.get()
    outer = rendering.message
    for item in items:
        rendering.take_step()
        rendering.message = rendering.indices.get(id(item), rendering.message)
        yield item
    rendering.message = outer


class _Generation(Extension):
    """`{% generation %}`, which marks the assistant's text for training: only its body is rendered here."""

    tags: ClassVar[set[str]] = {"generation"}  # pyright: ignore[reportIncompatibleVariableOverride]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(Namespace):
    """jinja2's `Namespace` without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        names = dict(*args[1:], **kwargs)
        for name in names:
            _refuse_underscore(name)
        Namespace.__init__(args[0], names)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: Any) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a chat template may not name {name} in a namespace")


class _ChatSandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%"})

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _refuse_wide(value.__self__)
        return wrapped

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise SecurityError("a chat template may not raise to a power")
        if operator == "%" and isinstance(left, str):
            _refuse_wide(left)
        if operator == "*" and not (isinstance(left, int | float) and isinstance(right, int | float)):
            count, repeated = (left, right) if isinstance(left, int | float) else (right, left)
            if count * len(repeated) > MAX_REPEAT:
                raise SecurityError(f"a chat template may not repeat text to more than {MAX_REPEAT} characters")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _rendering.get().take_step()
        if isinstance(getattr(__obj, "__self__", None), str):
            _refuse_large(*args, **kwargs)
        return super().call(__context, __obj, *args, **kwargs)


def _refuse_wide(pattern: Any) -> None:
    if WIDE.search(str(pattern)):
        raise SecurityError("a chat template may not format with large or computed widths")


def _format(pattern: Any, *args: Any, **kwargs: Any) -> str:
    _refuse_wide(pattern)
    return str(pattern) % (kwargs or args)


def _refuse_large(*args: Any, **kwargs: Any) -> None:
    if any(isinstance(arg, int) and arg > MAX_REPEAT for arg in (*args, *kwargs.values())):
        raise SecurityError(f"a chat template may not pad text to more than {MAX_REPEAT} characters")


def _refusing_large(function: Any) -> Any:
    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _refuse_large(*args, **kwargs)
        return function(*args, **kwargs)

    return bounded


@cache
def environment() -> Environment:
    """The sandbox with the functions and filters that chat templates expect."""
    env = _ChatSandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    filters: dict[str, Any] = env.filters
    filters["tojson"] = _to_json
    filters |= {name: _refusing_large(filters[name]) for name in ("center", "indent", "tojson")}
    filters["format"] = _format
    filters["counted"] = _counted
    functions: dict[str, Any] = env.globals
    functions["namespace"] = _Namespace
    functions["raise_exception"] = _raise_exception
    functions["strftime_now"] = _strftime_now
    return env


def parse_template(source: str) -> nodes.Template:
    """The syntax tree of a template. Raises jinja2's `TemplateSyntaxError`."""
    return environment().parse(source)


def compile_tree(tree: nodes.Template) -> Any:
    """A template in which every loop turn is counted; changes the tree."""
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = nodes.Filter(loop.iter, "counted", [], [], None, None, lineno=loop.lineno)
    return environment().from_string(tree)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Plain JSON; jinja2's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
