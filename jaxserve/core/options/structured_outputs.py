"""Host: `StructuredOutputsParams`: the form that generated text must have, by vLLM's names."""

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

from jaxserve.core.did_you_mean import did_you_mean
from jaxserve.core.errors import RequestError
from jaxserve.core.utf8_texts import is_utf8

PARAM = "structured_outputs"
KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
MAX_CHARS = 1 << 18  # of one constraint; the largest of JSONSchemaBench's 10,163 schemas are about as long
MAX_CHOICES = 1024


@dataclass(frozen=True, kw_only=True)
class StructuredOutputsParams:
    """Exactly one of the first six is given. Values are checked and normalized at construction; `RequestError`s name
    `structured_outputs`. Whether a schema or grammar can be honoured is known when it is compiled.

    json: a JSON schema, as an object or as its text; the output is a JSON value that it describes. json_object: True:
    any JSON object. regex: the whole output matches it (syntax of Rust's `regex`). choice: the output is one of these
    texts. grammar: a context-free grammar in llguidance's variant of Lark, or in GBNF. structural_tag: free text with
    parts that begin by a tag and then follow a schema: {"structures": [{"begin", "schema", "end"}, …], "triggers":
    [text, …]}.

    disable_any_whitespace: JSON on one line, without spaces. disable_additional_properties: objects of a schema have
    only the properties that it names. whitespace_pattern: a regular expression of the whitespace between parts of JSON.

    reasoning_end: the form follows text of any kind that this one ends, and up to 8 white-space characters.
    reasoning_start: that text must begin with this one, or is left out. The server's chats set both where they tell
    reasoning apart.
    """

    json: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | Mapping[str, Any] | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    reasoning_end: str | None = None
    reasoning_start: str | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> "StructuredOutputsParams":
        known = {field.name for field in fields(cls)}
        for name in kwargs.keys() - known:
            raise _error(f"has an unknown field {name!r}" + did_you_mean(str(name), known))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name in ("disable_any_whitespace", "disable_additional_properties"):
            if not isinstance(getattr(self, name), bool):
                raise _error(f"{name} must be true or false", name)
        if self.json_object is False:
            object.__setattr__(self, "json_object", None)
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise _error(f"needs exactly one of {', '.join(KINDS)}; got {' and '.join(given) or 'none'}")
        object.__setattr__(self, given[0], _CHECKS[given[0]](getattr(self, given[0]), given[0]))
        if self.kind not in ("json", "json_object"):
            for name in ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern"):
                if getattr(self, name):
                    raise _error(f"{name} goes only with json and json_object", name)
        if self.whitespace_pattern is not None:
            _text(self.whitespace_pattern, "whitespace_pattern")
            if self.disable_any_whitespace:
                raise _error("whitespace_pattern contradicts disable_any_whitespace", "whitespace_pattern")
        for name in ("reasoning_end", "reasoning_start"):
            if getattr(self, name) is not None:
                _text(getattr(self, name), name)
        if self.reasoning_start is not None and self.reasoning_end is None:
            raise _error("reasoning_start goes only with reasoning_end", "reasoning_start")

    @property
    def kind(self) -> str:
        """Which of `KINDS` is given."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    @cached_property
    def key(self) -> str:
        """A text that equal constraints share; JSON of all fields that are set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({name: value for name, value in values.items() if value not in (None, False)})

    def after_reasoning(self, end: str, start: str | None) -> "StructuredOutputsParams":
        """The same after reasoning, unless the form says how itself. Values may be long, and are not checked anew."""
        if self.reasoning_end is not None:
            return self
        later = copy(self)
        later.__dict__.pop("key", None)
        object.__setattr__(later, "reasoning_end", end)
        object.__setattr__(later, "reasoning_start", start)
        return later

    @classmethod
    def read(cls, value: Any) -> "StructuredOutputsParams":
        """From an instance, or a mapping of its fields."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise _error(f"must be a StructuredOutputsParams or an object with its fields, got {value!r}"[:200])
        return cls(**{str(name): item for name, item in cast(Mapping[Any, Any], value).items()})


def _error(message: str, field: str | None = None) -> RequestError:
    return RequestError(f"{PARAM} {message}", PARAM if field is None else f"{PARAM}.{field}")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise _error(f"{name} must be a text that is not empty", name)
    if len(value) > MAX_CHARS:
        raise _error(f"{name} has {len(value)} characters; at most {MAX_CHARS} are allowed", name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _error(f"{name} has half of a UTF-16 surrogate pair", name) from None
    return value


def _schema(value: Any, name: str) -> str:
    """The schema's text. Its keys keep their order, which is that of the properties in the output."""
    if isinstance(value, str):
        _text(value, name)
    try:
        schema = json.loads(value) if isinstance(value, str) else value
        unescaped = json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _error(f"{name} is not JSON: {error}"[:300], name) from None
    if not is_utf8(unescaped):  # escapes in a text, too
        raise _error(f"{name} has half of a UTF-16 surrogate pair", name)
    if not isinstance(schema, dict | bool):
        raise _error(f"{name} must be a JSON object", name)
    return value if isinstance(value, str) else _text(unescaped, name)


def _choice(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise _error(f"{name} must be a list of texts that is not empty", name)
    items = cast(Sequence[Any], value)
    if len(items) > MAX_CHOICES:
        raise _error(f"{name} holds {len(items)} texts; at most {MAX_CHOICES} are allowed", name)
    texts = tuple(_text(item, name) for item in items)
    if sum(map(len, texts)) > MAX_CHARS:
        raise _error(f"{name} has more than {MAX_CHARS} characters", name)
    return texts


def _true(value: Any, name: str) -> bool:
    if value is not True:
        raise _error(f"{name} must be true or false", name)
    return value


_CHECKS = {
    "json": _schema,
    "regex": _text,
    "choice": _choice,
    "grammar": _text,
    "json_object": _true,
    "structural_tag": _schema,
}
