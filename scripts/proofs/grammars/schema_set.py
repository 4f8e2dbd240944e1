"""The JSON schemas of the proof, by source and name; nothing is downloaded.

Made: `schema_generator`. Kubernetes: those of the package `kubernetes-validate`, with what they refer to. OpenAI: the
types of the package `openai`, as pydantic writes them. Both packages' are chosen by a seed.
"""

import importlib
import json
import pkgutil
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from scripts.proofs.grammars.schema_generator import Schema, generated

NUM_MADE_PER_STYLE, NUM_KUBERNETES, NUM_OPENAI = 90, 60, 60
MAX_CHARS = 20_000
DEFINITIONS = "_definitions.json"


def schema_set() -> dict[str, Schema]:
    """At least 300 schemas; the names begin with their source."""
    found = {f"made: {name}": schema for name, schema in generated(NUM_MADE_PER_STYLE).items()}
    found |= {f"kubernetes: {name}": schema for name, schema in _some(_kubernetes(), NUM_KUBERNETES)}
    return found | {f"openai: {name}": schema for name, schema in _some(_openai(), NUM_OPENAI)}


def source_of(name: str) -> str:
    return name.partition(":")[0]


def _some(makers: dict[str, Callable[[], Schema]], number: int) -> Iterator[tuple[str, Schema]]:
    """The first schemas in a random order that are not too long."""
    names = sorted(makers)
    random.Random(0).shuffle(names)
    made = ((name, makers[name]()) for name in names)
    return islice(((name, schema) for name, schema in made if len(json.dumps(schema)) <= MAX_CHARS), number)


def _kubernetes() -> dict[str, Callable[[], Schema]]:
    """Each resource of the newest version, with the definitions that it needs in the schema itself."""
    import kubernetes_validate

    versions = (Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema").glob("v*-local")
    folder = max(versions, key=lambda path: [int(part) for part in path.name[1:].removesuffix("-local").split(".")])
    definitions = json.loads((folder / DEFINITIONS).read_text())["$defs"]
    files = {file.stem: file for file in folder.glob("[!_]*-v*.json")}
    return {name: partial(_bundled, file, definitions) for name, file in files.items()}


def _bundled(file: Path, definitions: dict[str, Schema]) -> Schema:
    found: dict[str, Any] = {}

    def local(value: Any) -> Any:
        if isinstance(value, list):
            return [local(each) for each in value]
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("$ref"), str):
            name = value["$ref"].rpartition("/")[2]
            if name not in found:
                found[name] = None  # a schema may refer to itself
                found[name] = local(definitions[name])
            return {"$ref": f"#/$defs/{name}"}
        return {key: local(each) for key, each in value.items()}

    whole = {key: each for key, each in local(json.loads(file.read_text())).items() if key not in ("$id", "$schema")}
    return whole | ({"$defs": found} if found else {})


def _openai() -> dict[str, Callable[[], Schema]]:
    import openai.types
    from pydantic import BaseModel

    found = dict[str, Callable[[], Schema]]()
    for module in pkgutil.walk_packages(openai.types.__path__, "openai.types."):
        for name, value in vars(importlib.import_module(module.name)).items():
            is_own = isinstance(value, type) and value.__module__ == module.name
            if is_own and issubclass(value, BaseModel) and value.model_fields:
                found[f"{module.name.removeprefix('openai.types.')}.{name}"] = value.model_json_schema
    return found
