"""Host: command-line flags generated from the fields of a frozen dataclass, so that each option is defined once."""

import argparse
import dataclasses
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jaxserve.core.options.engine_config import ALIASES, EngineConfig

NO_TEXTS: Mapping[str, str] = types.MappingProxyType({})
NO_DEFAULTS: Mapping[str, Any] = types.MappingProxyType({})


def add_flags(
    parser: argparse.ArgumentParser,
    cls: type,
    *,
    skip: Collection[str] = (),
    aliases: Mapping[str, str] = NO_TEXTS,
    defaults: Mapping[str, Any] = NO_DEFAULTS,
    help_texts: Mapping[str, str] = NO_TEXTS,
) -> None:
    """Adds a `--flag` for each field of `cls` except those in `skip`; unset flags do not appear in the namespace.

    aliases: alternative name → field. defaults: the verb's defaults where they differ from the field's. help_texts: by
    field, where the fields have none of their own.
    """
    hints = typing.get_type_hints(cls)
    group = parser.add_argument_group(cls.__name__)
    for field in dataclasses.fields(cls):
        if field.name in skip:
            continue
        names = [field.name, *(alias for alias, meant in aliases.items() if meant == field.name)]
        flags = ["--" + name.replace("_", "-") for name in names]
        help_text = field.metadata.get("help") or help_texts[field.name]
        default = None if field.default is dataclasses.MISSING else field.default
        if field.name in defaults:
            default, help_text = defaults[field.name], help_text.partition("; default: ")[0]
        if default not in (None, (), ""):
            help_text = f"{help_text} (default: {_shown(default)})"
        options: dict[str, Any] = {"dest": field.name, "default": defaults.get(field.name, argparse.SUPPRESS)}
        options |= {"help": help_text}
        options |= _parsing(hints[field.name], field.metadata.get("choices"))
        group.add_argument(*flags, **options)


def given(args: argparse.Namespace, cls: type) -> dict[str, Any]:
    """The fields of `cls` that the user set."""
    return {f.name: getattr(args, f.name) for f in dataclasses.fields(cls) if hasattr(args, f.name)}


def add_engine_flags(
    parser: argparse.ArgumentParser,
    *,
    skip: Collection[str] = (),
    seed_help: str = "",
    defaults: Mapping[str, Any] = NO_DEFAULTS,
) -> None:
    """Adds flags of all options of `EngineConfig` except those in `skip` and the model, a positional argument.

    --seed is the seed of a request; that of the engine is --engine-seed, added only with a `seed_help`.
    """
    add_flags(parser, EngineConfig, skip=("model", "seed", *skip), aliases=ALIASES, defaults=defaults)
    if "keep_lowered" not in skip:
        parser.set_defaults(keep_lowered=True)  # safe here: a command's process has no patched functions
    if seed_help:
        parser.add_argument(
            "--engine-seed", type=int, metavar="INT", default=argparse.SUPPRESS, help=f"{seed_help} (default: 0)"
        )


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of the engine that the user set, without `model` and `--seed`."""
    options = {name: value for name, value in given(args, EngineConfig).items() if name not in ("model", "seed")}
    return options | ({"seed": args.engine_seed} if hasattr(args, "engine_seed") else {})


def _parsing(hint: Any, choices: tuple[str, ...] | None) -> dict[str, Any]:
    """The argparse options for a value of this type: a flag for a boolean, one word for a scalar, several words for a
    tuple of texts, JSON for the rest."""
    value_types = [t for t in _members(hint) if t is not type(None)]
    if choices:  # which the dataclass checks, with advice on names that mean something elsewhere
        return {"metavar": f"{{{','.join(choices)}}}"}
    if value_types == [bool]:
        return {"action": argparse.BooleanOptionalAction}
    if value_types == [tuple[str, ...]]:
        return {"nargs": "+", "action": "extend", "metavar": "STR"}
    if value_types and value_types[0] in (int, float, str) and len(value_types) == 1:
        kind = value_types[0]
        can_be_none = type(None) in _members(hint) and kind is not str  # a text may be the word itself
        return {"type": _or_none(kind) if can_be_none else kind, "metavar": kind.__name__.upper()}
    return {"type": _json, "metavar": "JSON"}


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _or_none(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A number, or "none"."""

    def read(text: str) -> Any:
        return None if text.lower() == "none" else kind(text)

    read.__name__ = kind.__name__  # which argparse names in its errors
    return read


def _members(hint: Any) -> tuple[Any, ...]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return typing.get_args(hint)
    return (hint,)


def _json(text: str) -> Any:
    """A JSON value, or the text itself where it is not JSON (`--stop END`)."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
