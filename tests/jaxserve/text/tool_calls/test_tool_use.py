"""Which tools an answer may or must call: schemas that hold it to calls, checked by an independent validator."""

import json
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from jaxserve.core.errors import RequestError
from jaxserve.text.tool_calls.tool_schema import checked_tools
from jaxserve.text.tool_calls.tool_use import ToolUse

TREE = {  # refers to itself and to a definition of its own
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "value": {"$ref": "#/$defs/value"},
        "children": {"type": "array", "items": {"$ref": "#"}},
        "$ref": {"type": "string"},
        "kind": {"const": {"$ref": "#/data"}},
    },
    "required": ["value"],
    "additionalProperties": False,
    "$defs": {"value": {"type": "integer"}},
}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "$defs": {"value": {"type": "string"}}}


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("grow", TREE), tool("write", TEXT), tool("now")]
GOOD = [
    [{"name": "grow", "parameters": {"value": 1, "children": [{"value": 2, "kind": {"$ref": "#/data"}}]}}],
    [{"name": "now", "parameters": {}}, {"name": "write", "parameters": {"text": "a"}}],
]
BAD = [
    [],
    {},
    [{"name": "grow"}],
    [{"name": "grow", "parameters": {"value": "1"}}],
    [{"name": "grow", "parameters": {"value": 1, "children": [{"value": "2"}]}}],
    [{"name": "grow", "parameters": {"text": "a"}}],
    [{"name": "other", "parameters": {}}],
    [{"name": "now", "parameters": {"a": 1}}],
    [{"name": "now", "parameters": {}, "more": 1}],
]


def schema_of(use: ToolUse) -> dict[str, Any]:
    assert use.constraint is not None
    return json.loads(str(use.constraint.json))


def is_valid(value: Any, schema: dict[str, Any]) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_required_calls_are_held_to_the_schemas_of_all_tools():
    schema = schema_of(ToolUse.read(TOOLS, "required"))
    assert [is_valid(value, schema) for value in GOOD] == [True] * len(GOOD)
    assert [is_valid(value, schema) for value in BAD] == [False] * len(BAD)


def test_one_call_alone_where_no_more_are_wanted():
    use = ToolUse.read(TOOLS, "required", False)
    assert [is_valid(value, schema_of(use)) for value in GOOD] == [True, False]
    assert use.max_calls == 1


def test_a_named_function_is_held_to_its_own_schema():
    use = ToolUse.read(TOOLS, {"type": "function", "function": {"name": "grow"}})
    assert schema_of(use) == TREE
    assert (use.function, use.choice, use.max_calls) == ("grow", "required", 1)
    none = ToolUse.read(TOOLS, {"type": "function", "function": {"name": "now"}})
    assert is_valid({}, schema_of(none))
    assert not is_valid({"a": 1}, schema_of(none))


def test_the_model_s_own_choice_is_not_constrained():
    for choice in (None, "auto"):
        use = ToolUse.read(TOOLS, choice)
        assert (use.choice, use.names, use.constraint, use.forced_format) == (
            "auto",
            ("grow", "write", "now"),
            None,
            None,
        )
        assert use.max_calls is None


@pytest.mark.parametrize(("tools", "choice"), [(None, None), ([], "auto"), (TOOLS, "none"), (None, "none")])
def test_nothing_is_called_without_tools_or_with_the_choice_none(tools, choice):
    assert ToolUse.read(tools, choice) == ToolUse()


def test_tools_are_copied_for_templates():
    given = [{"type": "function", "function": {"name": "f", "description": None, "strict": True}}]
    before = deepcopy(given)
    (found,) = checked_tools(given)
    assert given == before
    none = {"type": "object", "properties": {}, "additionalProperties": False}
    assert found == {"type": "function", "function": {"name": "f", "parameters": none}}


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": {1, 2}}, {"x": object()}])
def test_tools_that_are_no_json_are_refused(value):
    with pytest.raises(RequestError, match="JSON") as error:
        checked_tools([tool("f", value)])
    assert error.value.param == "tools"


def test_tools_that_hold_themselves_are_refused():
    loop: dict[str, Any] = {}
    loop["items"] = [loop, loop]
    with pytest.raises(RequestError) as error:
        checked_tools([tool("f", loop)])
    assert error.value.param == "tools"
