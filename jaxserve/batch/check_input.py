"""Host: `check_input`: one pass over a batch file before a model is loaded: repeated ids, names of other models."""

from array import array
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson

from jaxserve.batch.batch_lines import read_lines
from jaxserve.core.errors import RequestError

MAX_MODELS = 100  # names that are kept apart; a file for one model has one


@dataclass(slots=True)
class InputSummary:
    """models: the line that first names each model, in order."""

    num_lines: int = 0
    models: dict[str, int] = field(default_factory=dict[str, int])


def check_input(path: Path) -> InputSummary:
    """Raises `RequestError` where two lines have one custom_id. Takes 8 bytes of memory per line."""
    found, hashes = InputSummary(), array("Q")
    for number, raw in read_lines(path):
        found.num_lines += 1
        custom_id, model = _names(raw)
        if custom_id is not None:
            hashes.append(_hash(custom_id))
        if model is not None and len(found.models) < MAX_MODELS:
            found.models.setdefault(model, number)
    ordered = np.sort(np.frombuffer(hashes, np.uint64))
    if repeated := {int(value) for value in ordered[1:][ordered[1:] == ordered[:-1]]}:
        _refuse_repeated(path, repeated)
    return found


def check_models(summary: InputSummary, served: Collection[str], source: str) -> None:
    """Raises `RequestError` where a line names a model that is not served."""
    others = {name: number for name, number in summary.models.items() if name not in served}
    if others:
        name, number = next(iter(others.items()))
        more = f" (and {len(others) - 1} other models)" if len(others) > 1 else ""
        raise RequestError(
            f"{source}, line {number}: the model {name!r}{more} is not {' or '.join(map(repr, served))}, which this "
            f"run serves: put its lines into a file of their own, or add --served-model-name {name}",
            "model",
        )


def _refuse_repeated(path: Path, repeated: Collection[int]) -> None:
    """Raises `RequestError` with the two lines; returns where only hashes were equal."""
    first: dict[str, int] = {}
    for number, raw in read_lines(path):
        custom_id, _ = _names(raw)
        if custom_id is None or _hash(custom_id) not in repeated:
            continue
        if (before := first.setdefault(custom_id, number)) != number:
            raise RequestError(
                f"{path}: lines {before} and {number} have the same custom_id {custom_id!r}, by which their results "
                "could not be told apart",
                "custom_id",
            )


def _names(raw: bytes) -> tuple[str | None, str | None]:
    """The custom_id and the model of a line, None where it has none: its other mistakes are those of its own result."""
    try:
        line: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None, None
    return _text(_field(line, "custom_id")), _text(_field(_field(line, "body"), "model"))


def _field(value: Any, name: str) -> Any:
    return cast(dict[str, Any], value).get(name) if isinstance(value, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
