"""Host: block sizes measured on a device kind, stored as data next to the code.

A file `tuned/<device kind>/<op>.json` is written by scripts/tune_kernels:

    {"op": "paged_attention", "device_kind": "TPU v6 lite", "versions": {"jax": "0.11.2"}, "date": "2026-11-21",
     "entries": [{"kind": "decode", "num_rows": 64, "page_size": 64, "num_heads": 32, "num_kv_heads": 8,
                  "head_dim": 128, "dtype": "bfloat16", "pool_dtype": "bfloat16",
                  "block": {"positions": 512}, "time_us": 101.5}]}
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

TUNED = Path(__file__).parent / "tuned"
Key = Mapping[str, int | str]
Others = tuple[int | str, ...]
"""A key without the number of rows."""
Entries = dict[tuple[int, Others], dict[str, int]]


class TuningError(Exception):
    """A file of measured block sizes is damaged."""


@dataclass(frozen=True)
class _Fields:
    """Fields of an op's entries: counts and words that form the key, and the measured sizes."""

    counts: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    sizes: tuple[str, ...]
    is_by_nearest_rows: bool = True
    """False: an entry says that a kernel is faster than another at its number of rows, which says nothing of others."""


DTYPES = ("bfloat16", "float32")
STORED_DTYPES = (*DTYPES, "int8", "float8_e4m3fn", "float8_e5m2")
OPS = {
    "paged_attention": _Fields(
        counts=("num_rows", "page_size", "num_heads", "num_kv_heads", "head_dim"),
        words={"kind": ("decode", "chunks", "trees"), "dtype": DTYPES, "pool_dtype": STORED_DTYPES},
        sizes=("positions", "rows", "queries"),
    ),
    "matmul": _Fields(
        counts=("num_rows", "num_columns", "num_inputs"),
        words={
            "kind": ("plain", "gated"),
            "dtype": ("bfloat16", "float16", "int8", "float8_e4m3fn"),
            "weight_dtype": ("bfloat16", "float16", "int8", "float8_e4m3fn"),
        },
        sizes=("columns", "inputs", "splits"),
        is_by_nearest_rows=False,
    ),
}


def tuned(op: str, device_kind: str, key: Key, folder: Path = TUNED) -> dict[str, int] | None:
    """Block sizes measured for this key on this kind of device, by name; None if there are none.

    Among several measured numbers of rows, the nearest by ratio counts, unless the op's entries also say that a kernel
    is worth using; the rest of the key must be equal.

    Args:
      device_kind: of the target, as JAX spells it ("TPU v6 lite").
      key: every count and word of OPS[op].

    Raises:
      TuningError: the file is damaged; the message names it and what is wrong.
      ValueError: the op is unknown, or the key lacks fields or has others.
    """
    if op not in OPS:
        raise ValueError(f"tuning: op={op!r} is unknown; use one of {', '.join(OPS)}")
    names = {*OPS[op].counts, *OPS[op].words}
    if set(key) != names:
        raise ValueError(f"tuning: the key of {op} has {sorted(key)}; it needs {sorted(names)}")
    entries = _entries(op, folder / slug(device_kind) / f"{op}.json")
    num_rows, others = _split(op, key)
    measured = [rows for rows, rest in entries if rest == others and (OPS[op].is_by_nearest_rows or rows == num_rows)]
    if not measured:
        return None
    nearest = min(measured, key=lambda rows: max(rows, num_rows) / max(1, min(rows, num_rows)))
    return dict(entries[nearest, others])


def forget() -> None:
    """Drops the cached files, after one has been written."""
    _entries.cache_clear()


def row_bucket(num_rows: int) -> int:
    """The next power of two: numbers of rows are measured in these steps."""
    return 1 << max(num_rows - 1, 0).bit_length()


def slug(device_kind: str) -> str:
    """The device kind as a folder's name."""
    return re.sub(r"[^a-z0-9]+", "_", device_kind.lower()).strip("_")


@cache
def _entries(op: str, file: Path) -> Entries:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise TuningError(f"{file}: not valid JSON ({error}); write it again with scripts/tune_kernels") from error
    return parse(op, content, str(file))


def parse(op: str, content: Any, file: str) -> Entries:
    """Sizes by key. Raises TuningError, naming the file, for unknown, missing, invalid or repeated entries."""
    fields = _dict_of(content)
    if fields.get("op") != op or not isinstance(fields.get("entries"), list):
        raise TuningError(f'{file}: it needs "op": "{op}" and a list "entries"')
    if unknown := fields.keys() - {"op", "device_kind", "versions", "date", "entries"}:
        raise TuningError(f"{file}: unknown keys {sorted(unknown)}")
    found: Entries = {}
    for index, entry in enumerate(fields["entries"]):
        where = f"{file}: entry {index}"
        key, sizes = _parse_entry(op, entry, where)
        if key in found:
            raise TuningError(f"{where}: another entry has the same key")
        found[key] = sizes
    return found


def _dict_of(content: Any) -> dict[str, Any]:
    """`content` if it is a JSON object, else an empty one."""
    return cast(dict[str, Any], content) if isinstance(content, dict) else {}


def _parse_entry(op: str, content: Any, where: str) -> tuple[tuple[int, Others], dict[str, int]]:
    fields, entry = OPS[op], _dict_of(content)
    needed = {*fields.counts, *fields.words, "block"}
    if entry.keys() - {"time_us"} != needed:
        raise TuningError(f'{where}: it must be an object with the keys {sorted(needed)} and optionally "time_us"')
    for name in fields.counts:
        if not _is_count(entry[name]) or (name == "num_rows" and entry[name] != row_bucket(entry[name])):
            raise TuningError(f"{where}: {name}={entry[name]!r} must be a count (num_rows a power of two)")
    for name, words in fields.words.items():
        if entry[name] not in words:
            raise TuningError(f"{where}: {name}={entry[name]!r} must be one of {', '.join(words)}")
    block = _dict_of(entry["block"])
    if not block or block.keys() - set(fields.sizes):
        raise TuningError(
            f"{where}: block={entry['block']!r} must hold some of {', '.join(fields.sizes)} and nothing else"
        )
    for name, size in block.items():
        if not _is_count(size) or size & (size - 1):
            raise TuningError(f"{where}: block {name}={size!r} must be a power of two")
    return _split(op, entry), block


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _split(op: str, entry: Key) -> tuple[int, Others]:
    names = [name for name in (*OPS[op].counts, *OPS[op].words) if name != "num_rows"]
    return int(entry["num_rows"]), tuple(entry[name] for name in names)
