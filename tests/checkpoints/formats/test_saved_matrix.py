"""The index of packed matrices is checked before anything is read or allocated; a fault is named with its matrix."""

import json

import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.formats.orbax_folder import OrbaxFile, save_part
from checkpoints.formats.orbax_index import PACKED

TABLE = np.linspace(-1, 1, 16, dtype=np.float32).tobytes().hex()
SCALES = np.linspace(-1, 1, 256, dtype=np.float32).tobytes().hex()


def entry(dtype, *shape):
    return {"shape": list(shape), "dtype": dtype}


ROWS = {"w.codes": entry("int8", 4, 64), "w.scales": entry("float32", 4)}
OUTLIERS = ROWS | {"w.outliers": entry("bfloat16", 4, 2), "w.columns": entry("int32", 2)}
Q4_0 = {"w.fields.scales": entry("float16", 4, 2), "w.fields.nibbles": entry("uint8", 4, 32)}
INTS = {"w.fields.scales": entry("float16", 4, 1), "w.fields.bits_4": entry("uint8", 4, 32)}
ORDERED = INTS | {"w.order": entry("int32", 64)}
NESTED = {
    "w.fields.scale_codes": entry("uint8", 4, 16),
    "w.fields.outer_scales": entry("float32", 4, 4),
    "w.fields.scale_offsets": entry("float32", 4, 1),
    "w.fields.bits_4": entry("uint8", 4, 512),
}


def part(number, rows, dtype="uint8"):
    fields = {"scales": entry("float16", 2, rows, 2), "nibbles": entry(dtype, 2, rows, 32)}
    return {f"w.parts.{number}.fields.{name}": field for name, field in fields.items()}


def index(forms, arrays):
    parts = {"outside": {"norm": entry("float32", 4)} | arrays}
    return json.dumps({"format": PACKED, "parts": parts, "forms": {"outside": forms}})


def opened(folder, text):
    (folder / "index.json").write_text(text)
    return OrbaxFile(folder)


FOUND = {
    "rows": ("int8", ROWS, (4, 64), "int8"),
    "outliers": ("w8a8-o2", OUTLIERS, (4, 64), "w8a8-o2"),
    "blocks": ("Q4_0", Q4_0, (4, 64), "Q4_0"),
    "groups": ("int 4 64 float16 symmetric", INTS, (4, 64), "INT4-g64"),
    "an order": ("in any order int 4 64 float16 symmetric", ORDERED, (4, 64), "INT4-g64 in any order"),
    "double quantization": (f"table NF4-g64 {TABLE} {SCALES} 4 1024", NESTED, (4, 1024), "NF4-g64 nested"),
    "parts": (["Q4_0"] * 3, part(0, 3) | part(1, 1) | part(2, 1), (2, 5, 64), "Q4_0"),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_matrix_has_the_shape_of_its_values_and_the_name_of_its_form(name, tmp_path):
    keys, arrays, shape, form = FOUND[name]
    file = opened(tmp_path, index({"w": keys}, arrays))
    assert set(file.tensors) == {"outside/norm", "outside/w"}
    info = file.tensors["outside/w"]
    assert (info.shape, info.dtype) == (shape, form)
    assert info.nbytes == sum(array.nbytes for array in file.arrays_of("outside").values()) - 16


HOSTILE_KEYS = {
    "no form": "Q9_9",
    "no name": 7,
    "nothing": None,
    "two parts": ["Q4_0"] * 2,
    "four parts": ["Q4_0"] * 4,
    "a part of rows": ["Q4_0", "Q4_0", "int8"],
    "bits of a device": "half bits of Q4_0",
    "blocks of a device": "wide Q5_0",
    "two orders": "in any order in any order Q4_0",
    "many orders": "in any order " * 900 + "Q4_0",
    "outliers of a form without": "int8-o2",
    "so many outliers": "w8a8-o9999999",
    "no bits": "int 0 64 float16 symmetric",
    "many bits": "int 16 64 float16 symmetric",
    "groups of none": "int 4 0 float16 symmetric",
    "negative groups": "int 4 -64 float16 symmetric",
    "huge groups": f"int 4 {2**40} float16 symmetric",
    "digits of another script": "int 4 ６４ float16 symmetric",
    "objects": "int 4 64 object symmetric",
    "no dtype": "int 4 64 nonsense symmetric",
    "a short table": f"table NF4-g64 {TABLE[:-8]}",
    "no table": "table NF4-g64 zz",
    "a table of scales that ends": f"table NF4-g64 {TABLE} {SCALES[:64]} 4 1024",
    "factors for none": f"table NF4-g64 {TABLE} {SCALES} 0 1024",
    "factors that do not divide": f"table NF4-g64 {TABLE} {SCALES} 5 1024",
    "rows that do not divide": f"table NF4-g64 {TABLE} {SCALES} 4 1000",
    "a billion runs": f"table NF4-g64 {TABLE} {SCALES} 256 1024 {10**9}",
    "no runs": f"table NF4-g64 {TABLE} {SCALES} 4 1024 0",
    "runs of none": f"table NF4-g64 {TABLE} {SCALES} 0 1024 2",
    "runs and more": f"table NF4-g64 {TABLE} {SCALES} 256 1024 2 2",
    "a long key": "x" * 10**6,
}


@pytest.mark.parametrize("name", HOSTILE_KEYS)
def test_a_key_that_is_no_form_is_refused_by_name(name, tmp_path):
    with pytest.raises(CheckpointError, match="outside/w") as refusal:
        opened(tmp_path, index({"w": HOSTILE_KEYS[name]}, ROWS | Q4_0 | INTS | NESTED))
    assert len(str(refusal.value)) < 1000


def without(arrays, name):
    return {key: array for key, array in arrays.items() if key != name}


HOSTILE_ARRAYS = {
    "a missing field": ("Q4_0", without(Q4_0, "w.fields.scales"), "outside/w has no array w.fields.scales"),
    "a dtype": ("Q4_0", Q4_0 | {"w.fields.nibbles": entry("int8", 4, 32)}, r"nibbles is int8\[4, 32\], .* uint8"),
    "codes without blocks": ("Q4_0", Q4_0 | {"w.fields.nibbles": entry("uint8", 4, 33)}, r"needs uint8\[4, 32\]"),
    "a huge field": ("Q4_0", Q4_0 | {"w.fields.nibbles": entry("uint8", 4, 2**40)}, r"needs uint8\[4, 32\]"),
    "less than a block": ("Q4_K", {f"w.fields.{name}": entry(dtype, 4, 1) for name, dtype in (
        ("block_scales", "float16"), ("block_minima", "float16"), ("group_scales", "uint8"), ("nibbles", "uint8"),
    )}, r"group_scales is uint8\[4, 1\], .* uint8\[4, 12\]"),
    "other rows": ("int8", ROWS | {"w.scales": entry("float32", 5)}, r"scales is float32\[5\], .* float32\[4\]"),
    "scales of half": ("int8", ROWS | {"w.scales": entry("bfloat16", 4)}, "scales is bfloat16"),
    "codes of floats": ("fp8", ROWS, r"codes is int8\[4, 64\], .* float8_e4m3fn"),
    "no columns": ("w8a8-o2", without(OUTLIERS, "w.columns"), "has no array w.columns"),
    "other columns": ("w8a8-o3", OUTLIERS, r"outliers is bfloat16\[4, 2\], .*\[4, 3\]"),
    "an order of others": (
        "in any order int 4 64 float16 symmetric", ORDERED | {"w.order": entry("int32", 65)}, r"order is int32\[65\]"
    ),
    "parts of other rows": (["Q4_0"] * 3, part(0, 3) | part(2, 1) | {
        "w.parts.1.fields.scales": entry("float16", 3, 1, 2), "w.parts.1.fields.nibbles": entry("uint8", 3, 1, 32)
    }, "which are not rows of one matrix"),
    "an axis": ("int8", {"w.codes": entry("int8", 64), "w.scales": entry("float32")}, "two or three axes"),
    "a name twice": ("int8", ROWS | {"w": entry("float32", 4, 64)}, "outside/w is an array, and has a form"),
    "codes without a form": ("int8", ROWS | {"v": entry("int8", 4)}, "outside/v is int8; without a form"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_ARRAYS)
def test_arrays_that_do_not_fit_their_form_are_refused(name, tmp_path):
    key, arrays, fault = HOSTILE_ARRAYS[name]
    with pytest.raises(CheckpointError, match=fault) as refusal:
        opened(tmp_path, index({"w": key}, arrays))
    assert str(refusal.value).startswith(str(tmp_path / "index.json"))


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"format": "jaxserve-orbax-1"}, "is not an index"),
        ({"forms": []}, "is not an index"),
        ({"forms": {"layer-1": {}}}, "'layer-1' has forms and is not a part"),
        ({"forms": {"outside": "int8"}}, "'outside' has forms"),
    ],
)
def test_tables_of_forms_that_are_none_are_refused(changed, fault, tmp_path):
    table = json.loads(index({"w": "int8"}, ROWS)) | changed
    with pytest.raises(CheckpointError, match=fault):
        opened(tmp_path, json.dumps(table))


ORDER, COLUMNS = np.arange(64, dtype=np.int32)[::-1], np.array([3, 64], np.int32)
VALUES = {
    "an order": ("in any order int 4 64 float16 symmetric", ORDERED, "w.order", ORDER, ORDER % 63, "each of 64 inputs"),
    "columns": ("w8a8-o2", OUTLIERS, "w.columns", COLUMNS, COLUMNS[::-1], "ascending inputs of 64"),
}


@pytest.mark.parametrize("name", VALUES)
def test_inputs_that_are_not_there_are_refused_when_they_are_read(name, tmp_path):
    key, arrays, changed, good, bad, fault = VALUES[name]
    dtypes = {name: "float32" if array["dtype"] == "bfloat16" else array["dtype"] for name, array in arrays.items()}
    text = index({"w": key}, {name: array | {"dtype": dtypes[name]} for name, array in arrays.items()})
    values = {name: np.ones(array["shape"], dtypes[name]) for name, array in arrays.items()}
    save_part(tmp_path, "outside", values | {"norm": np.ones(4, np.float32), changed: good})
    assert opened(tmp_path, text).read_rows("outside/w", 0, 4).shape == (4, 64)
    save_part(tmp_path, "outside", values | {"norm": np.ones(4, np.float32), changed: bad})
    with pytest.raises(CheckpointError, match=fault):
        opened(tmp_path, text).read_rows("outside/w", 0, 4)
