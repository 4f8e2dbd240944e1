"""Device: the forms of packed matrices in an Orbax folder, by the keys that its index has of them.

The index may say anything: a form is taken from a key if it has the same key, is one in which blocks are saved, and
decodes a block to as many values as it says.
"""

import re
from functools import lru_cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp

from checkpoints.errors import CheckpointError
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.form_changes import saved_form
from pallas_kernels.block_forms.form_keys import form_of_key, key_of
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import ALL_SCHEMES, QTensor, Scheme

Form = Scheme | BlockForm | tuple[BlockForm, ...]
NUM_PARTS = 3
"""Of rows that have forms of their own: queries, keys and values."""
_SCHEME = re.compile(r"(?P<name>int8|w8a8|fp8)(?:-o(?P<outliers>[1-9][0-9]{0,5}))?")
_MAX_KEY, _MAX_BLOCK = 10_000, 2**24


def keys_of(matrix: Any) -> str | list[str] | None:
    """What the index says of a matrix as it is saved; None: of one that is not packed."""
    if isinstance(matrix, RowParts):
        return [key_of(part.form) for part in matrix.parts]
    if isinstance(matrix, QTensor):
        return matrix.scheme.name
    return key_of(matrix.form) if isinstance(matrix, BlockTensor) else None


def form_of_keys(where: str, keys: Any) -> Form:
    """The form of such keys. Raises `CheckpointError`, which begins with `where`."""
    if isinstance(keys, list):
        parts = cast(list[Any], keys)
        if len(parts) != NUM_PARTS:
            raise CheckpointError(f"{where} has {len(parts)} parts, not {NUM_PARTS}")
        return tuple(_block_form(where, key) for key in parts)
    found = _SCHEME.fullmatch(keys) if isinstance(keys, str) else None
    if found is None:
        return _block_form(where, keys)
    scheme, outliers = ALL_SCHEMES[found["name"]], int(found["outliers"] or 0)
    if outliers and scheme.name != "w8a8":
        raise CheckpointError(f"{where}: {keys} is no form: only w8a8 has outliers")
    return scheme.with_outliers(outliers)


def _block_form(where: str, key: Any) -> BlockForm:
    form = _saved_form(key) if isinstance(key, str) and len(key) <= _MAX_KEY else None
    if form is None:
        raise CheckpointError(f"{where}: {str(key)[:80]!r} is no form of packed weights")
    return form


@lru_cache(maxsize=256)
def _saved_form(key: str) -> BlockForm | None:
    """The form of a key, if it is one in which blocks are saved and can be decoded."""
    try:
        form = form_of_key(key)
        if key_of(form) != key or saved_form(form) != form or not 0 < form.block_len <= _MAX_BLOCK:
            return None
        block = {field.name: jax.ShapeDtypeStruct((1, field.count), jnp.dtype(field.dtype)) for field in form.fields}
        values = jax.eval_shape(partial(form.decode, dtype=jnp.float32), block)
    except Exception:  # whatever numbers that do not fit make of the arithmetic
        return None
    return form if values.shape == (1, form.block_len) else None
