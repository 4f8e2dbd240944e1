"""Host: structural tags as Lark: free text with parts that begin by a tag and then follow a schema, as in vLLM."""

import json
from dataclasses import dataclass
from typing import Any, cast

from jaxserve.constrained.json_schema_rules import OPTIONS, SchemaError, check_schema
from jaxserve.constrained.lark_grammars import quoted

FIELDS = {"begin", "schema", "end"}


@dataclass(frozen=True, slots=True)
class Structure:
    """A part of a text: `begin`, JSON that follows `schema`, `end`."""

    begin: str
    schema: dict[str, Any]
    end: str


def tagged_text(tag: Any, options: dict[str, Any]) -> str:
    """Lark of {"structures": [{"begin", "schema", "end"}, …], "triggers": [text, …]}: once a trigger has been written,
    one of the structures follows whose begin starts with it. options: llguidance's, for the schemas."""
    structures, triggers = _read_tag(tag)
    names = [f"part_{i}" for i in range(len(structures))]
    rules = [f"start: ( {' | '.join(names)} )* rest", "rest: TEXT", "TEXT: /(?s:.*)/"]
    for i, structure in enumerate(structures):
        trigger = next((text for text in triggers if structure.begin.startswith(text)), None)
        if trigger is None:
            raise SchemaError(f"structures[{i}].begin starts with none of the triggers {triggers}"[:500])
        schema = json.dumps({**structure.schema, OPTIONS: options})
        begin = _literal(structure.begin[len(trigger) :])
        rules.append(f"trigger_{i}[lazy]: TEXT {_literal(trigger)}")
        rules.append(f"{names[i]}: trigger_{i} {begin} %json {schema} {_literal(structure.end)}")
    return "\n".join(rules) + "\n"


def _literal(text: str) -> str:
    return quoted(text) if text else ""


def _read_tag(tag: Any) -> tuple[list[Structure], list[str]]:
    if not isinstance(tag, dict) or "format" in tag:
        raise SchemaError('only {"structures": […], "triggers": […]} is served, "format" is not')
    fields = cast(dict[str, Any], tag)
    if unknown := fields.keys() - {"type", "structures", "triggers"}:
        raise SchemaError(f"unknown fields {sorted(unknown)}"[:500])
    structures, triggers = _list(fields, "structures"), _list(fields, "triggers")
    if not all(isinstance(text, str) and text for text in triggers):
        raise SchemaError("triggers must be texts that are not empty")
    return [_read_structure(item, f"structures[{i}]") for i, item in enumerate(structures)], triggers


def _list(fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    if not isinstance(value, list) or not value:
        raise SchemaError(f"{name} must be a list that is not empty")
    return cast(list[Any], value)


def _read_structure(item: Any, where: str) -> Structure:
    if not isinstance(item, dict) or not cast(dict[str, Any], item).keys() <= FIELDS:
        raise SchemaError(f'{where} must be {{"begin": text, "schema": schema, "end": text}}')
    fields = cast(dict[str, Any], item)
    begin, end, schema = fields.get("begin"), fields.get("end", ""), fields.get("schema", True)
    if not isinstance(begin, str) or not begin or not isinstance(end, str):
        raise SchemaError(f"{where} needs a begin and an end that are texts")
    if schema is not True and not isinstance(schema, dict):
        raise SchemaError(f"{where}.schema must be a JSON schema")
    check_schema(schema)
    return Structure(begin, {} if schema is True else cast(dict[str, Any], schema), end)
