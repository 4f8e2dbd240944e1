"""Host: JSON schemas before they become grammars: their parts by path, what is refused, additional properties."""

from collections.abc import Iterator
from typing import Any, cast

MAX_PATH_CHARS = 200
MAX_NESTING = 64  # schemas within each other; llguidance's reader of JSON stops at 128 objects and lists
BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # each value is a schema
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLE = (
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
OPTIONS = "x-guidance"  # by which llguidance would read options of its own in a schema


class SchemaError(ValueError):
    """A schema that cannot be honoured. path: a JSON Pointer to the part at fault, as "#/properties/a"."""

    def __init__(self, reason: str, path: str = "#"):
        shown = path if len(path) <= MAX_PATH_CHARS else f"{path[:MAX_PATH_CHARS]}…"
        super().__init__(reason if path == "#" else f"{reason} (at {shown})")


def parts(schema: Any, path: str = "#") -> Iterator[tuple[str, Any]]:
    """The schemas directly within a schema, with their paths."""
    if not isinstance(schema, dict):
        return
    fields = cast(dict[str, Any], schema)
    for keyword, value in fields.items():
        here = f"{path}/{_escaped(keyword)}"
        if keyword in BY_NAME and isinstance(value, dict):
            for name, part in cast(dict[str, Any], value).items():
                yield f"{here}/{_escaped(name)}", part
        elif (keyword in LISTS or keyword == "items") and isinstance(value, list):
            for i, part in enumerate(cast(list[Any], value)):
                yield f"{here}/{i}", part
        elif keyword in SINGLE:
            yield here, value


def check_schema(schema: Any) -> None:
    """Raises `SchemaError` for schemas that are too deep, or that have options of llguidance."""
    if isinstance(schema, dict) and OPTIONS in schema:
        raise SchemaError(f"{OPTIONS!r} is not a keyword of JSON schemas: use the fields of structured_outputs")
    level: list[tuple[str, Any]] = [("#", schema)]
    for _ in range(MAX_NESTING):
        level = [inner for path, part in level for inner in parts(part, path)]
        if not level:
            return
    raise SchemaError(f"schemas are nested more than {MAX_NESTING} deep", level[0][0])


def forbid_additional_properties(schema: Any) -> None:
    """Changes a schema so that objects that name properties allow no others, unless they say otherwise themselves."""
    if not isinstance(schema, dict):
        return
    fields = cast(dict[str, Any], schema)
    for _, part in parts(fields):
        forbid_additional_properties(part)
    if "properties" in fields or "patternProperties" in fields:
        fields.setdefault("additionalProperties", False)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
