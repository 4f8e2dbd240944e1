"""Device: names by which block forms are found again: of programs that are stored, and of weights that are saved.

The keys of forms in which blocks are saved (`form_changes.saved_form`) are a part of the format of Orbax folders: a key
keeps its meaning, with the names of the form's fields.
"""

import numpy as np

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.float_forms import NAMES, float_form
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits, without_half_bits
from pallas_kernels.block_forms.input_orders import with_order, without_order
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.block_forms.packed_zeros import PackedZeros, with_packed_zeros
from pallas_kernels.block_forms.table_forms import (
    MAX_PARTED_RUNS,
    SCALE_DTYPES,
    NestedScales,
    Table,
    nested_form,
    num_parted_runs,
    table_form,
    with_scales,
)
from pallas_kernels.block_forms.wide_blocks import WIDE_FORMS

HALF_BITS, ORDER, PACKED_ZEROS, WIDE = "half bits of ", "in any order ", "packed zeros of ", "wide "


def key_of(form: BlockForm) -> str:
    """A name that says all of a form."""
    if (stored := without_half_bits(form)) != form:
        return HALF_BITS + key_of(stored)
    if isinstance(form.scales, PackedZeros):
        return PACKED_ZEROS + key_of(form.scales.plain)
    if form.has_order:
        return ORDER + key_of(without_order(form))
    if WIDE_FORMS.get(form.name) == form:
        return WIDE + form.name
    if form.name in GGML_FORMS:
        return form.name
    dtypes = {field.name: field.dtype for field in form.fields}
    if form.values:
        name, _, nested = form.name.partition(" ")
        return f"table {name} {_bytes(form.values)}{_nested_key(form) if nested else _scales_key(dtypes['scales'])}"
    if dtypes.get("codes") in NAMES:
        return f"float {dtypes['codes']} {form.group_len} {dtypes['scales']}"
    bits, has_zeros = sum(plane.bits for plane in form.planes), "zeros" in dtypes
    return f"int {bits} {form.group_len} {dtypes['scales']} {'zeros' if has_zeros else 'symmetric'}"


def form_of_key(key: str) -> BlockForm:
    """The form of such a name; raises ValueError for another one."""
    if key.startswith(HALF_BITS):
        return with_half_bits(form_of_key(key.removeprefix(HALF_BITS)))
    if key.startswith(PACKED_ZEROS):
        form = with_packed_zeros(plain := form_of_key(key.removeprefix(PACKED_ZEROS)), 0)
        return _found(key, None if form == plain else form)
    if key.startswith(ORDER):
        return with_order(form_of_key(key.removeprefix(ORDER)))
    if key.startswith(WIDE) and (name := key.removeprefix(WIDE)) in WIDE_FORMS:
        return WIDE_FORMS[name]
    if key in GGML_FORMS:
        return GGML_FORMS[key]
    match key.split(" "):
        case "table", name, values:
            form = _table_form(name, values)
        case "table", name, values, dtype if dtype in SCALE_DTYPES[1:] and (plain := _table_form(name, values)):
            form = with_scales(plain, dtype)
        case "table", name, values, scales, run_len, block_len if plain := _table_form(name, values):
            form = nested_form(plain, _values(scales, 256), int(run_len), int(block_len))
        case "table", name, values, scales, run_len, block_len, num_runs if plain := _table_form(name, values):
            form = nested_form(plain, _values(scales, 256), int(run_len), int(block_len), int(num_runs))
            form = form if 0 < int(num_runs) <= MAX_PARTED_RUNS and int(run_len) > 0 else None
        case "float", codes, group_len, scales if codes in NAMES:
            return float_form(codes, int(group_len), scales)
        case "int", bits, group_len, scales, zeros:
            form = int_form(int(bits), int(group_len), scales, zeros == "zeros")
        case _:
            form = None
    return _found(key, form)


def _found(key: str, form: BlockForm | None) -> BlockForm:
    if form is None:
        raise ValueError(f"{key!r} is no form of blocks")
    return form


def _scales_key(dtype: str) -> str:
    return "" if dtype == SCALE_DTYPES[0] else f" {dtype}"


def _nested_key(form: BlockForm) -> str:
    assert isinstance(form.scales, NestedScales)
    num_runs = num_parted_runs(form)
    return f" {_bytes(form.scales.values)} {form.scales.run_len} {form.block_len}{f' {num_runs}' if num_runs else ''}"


def _table_form(name: str, values: str) -> BlockForm | None:
    kind, _, group_len = name.partition("-g")
    return table_form(kind, _values(values, 16), int(group_len))


def _bytes(values: Table) -> str:
    return np.asarray(values, np.float32).tobytes().hex()


def _values(text: str, count: int) -> Table:
    values = tuple(np.frombuffer(bytes.fromhex(text), np.float32).tolist())
    if len(values) != count:
        raise ValueError(f"a table has {len(values)} values instead of {count}")
    return values
