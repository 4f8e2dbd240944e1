"""Host: `ToolUse`: the tools that a request offers, and which of them the answer may or must call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.text.schema_check import check_schema
from jaxserve.text.tool_calls.forced_calls import arguments_of
from jaxserve.text.tool_calls.tool_call_formats import GENERIC, ToolCallFormat
from jaxserve.text.tool_calls.tool_schema import AUTO, CHOICE_SCHEMA, NONE, REQUIRED, checked_tools

ROOT_KEYWORDS = ("$schema", "$id")  # of a schema that is no part of another one
DATA_KEYWORDS = frozenset(("const", "enum", "default", "examples"))  # their values are no schemas


@dataclass(frozen=True, slots=True)
class ToolUse:
    """tools: those that the prompt shows; empty with the choice "none", so that the model is not tempted. function: the
    name of the one that must be called; choice is "required" then. is_parallel: whether an answer may have more calls.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    choice: str = NONE
    function: str | None = None
    is_parallel: bool = True

    @classmethod
    def read(cls, tools: Any, choice: Any = None, is_parallel: bool = True) -> "ToolUse":
        """choice: "none", "auto", "required", {"type": "function", "function": {"name"}}, or None for "auto".
        Without tools nothing is called. Raises `RequestError` naming `tools` or `tool_choice`."""
        found = checked_tools(tools)
        kind, function = _read_choice(choice)
        names = [tool["function"]["name"] for tool in found]
        if kind == REQUIRED and not found:
            raise RequestError("tool_choice needs tools", "tool_choice")
        if function is not None and function not in names:
            raise RequestError(f"tool_choice names {function[:128]!r}, which is none of the tools", "tool_choice")
        if not found or kind == NONE:
            return cls()
        return cls(found, kind, function, is_parallel)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tools."""
        return tuple(tool["function"]["name"] for tool in self.tools)

    @property
    def max_calls(self) -> int | None:
        """The most calls of an answer; None: any number."""
        return None if self.is_parallel and self.function is None else 1

    @property
    def forced_format(self) -> ToolCallFormat | None:
        """The format of an answer that `constraint` holds; None where the model decides whether it calls any."""
        if self.choice != REQUIRED:
            return None
        return GENERIC if self.function is None else ToolCallFormat(arguments_of(self.function))

    @property
    def constraint(self) -> StructuredOutputsParams | None:
        """Holds an answer to calls: the arguments of the one function, or a list of {"name", "parameters"}."""
        if self.choice != REQUIRED:
            return None
        if self.function is not None:
            return StructuredOutputsParams(json=self._parameters(self.function))
        calls, definitions = list[dict[str, Any]](), dict[str, Any]()
        for i, tool in enumerate(self.tools):
            name, parameters = tool["function"]["name"], tool["function"]["parameters"]
            alone = {key: value for key, value in parameters.items() if key not in ROOT_KEYWORDS}
            definitions[f"tool{i}"] = _moved(alone, f"#/$defs/tool{i}")
            properties = {"name": {"const": name}, "parameters": {"$ref": f"#/$defs/tool{i}"}}
            required = list(properties)
            calls.append(
                {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
            )
        bounds = {"minItems": 1} if self.is_parallel else {"minItems": 1, "maxItems": 1}
        schema = {"type": "array", **bounds, "items": {"anyOf": calls}, "$defs": definitions}
        return StructuredOutputsParams(json=schema)

    def _parameters(self, name: str) -> Mapping[str, Any]:
        return next(tool["function"]["parameters"] for tool in self.tools if tool["function"]["name"] == name)


def forces_calls(tools: Any, choice: Any) -> bool:
    """Whether the fields of a body, unchecked, hold answers to calls."""
    return bool(tools) and choice not in (None, NONE, AUTO)


def _read_choice(choice: Any) -> tuple[str, str | None]:
    """The word, and the name of a function."""
    if choice is None:
        return AUTO, None
    check_schema(choice, CHOICE_SCHEMA, "tool_choice")
    return (choice, None) if isinstance(choice, str) else (REQUIRED, choice["function"]["name"])


def _moved(schema: Any, root: str) -> Any:
    """The schema as it must be where it stands at `root` in another one: "#/$defs/x" refers to its own root."""
    if isinstance(schema, list):
        return [_moved(item, root) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast(dict[str, Any], schema)
    return {key: value if key in DATA_KEYWORDS else _moved_value(key, value, root) for key, value in fields.items()}


def _moved_value(key: str, value: Any, root: str) -> Any:
    is_own = key == "$ref" and isinstance(value, str) and value.startswith("#")
    return root + value[1:] if is_own else _moved(value, root)
