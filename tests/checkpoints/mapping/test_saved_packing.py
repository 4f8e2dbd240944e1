"""Packed matrices widen to the shapes of a mesh as their values do, and narrow back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.formats.saved_matrix import SavedMatrix
from checkpoints.mapping.canonical import narrow, widen
from checkpoints.mapping.saved_packing import can_be, from_saved, to_saved
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.packed_values import packed_values
from pallas_kernels.qtensor import SCHEMES, QTensor
from tests.pallas_kernels.block_forms.test_ggml_forms import blocks_of

NUM_HEADS, KV_HEADS, HEAD_DIM, NUM_IN = 8, 2, 4, 64
RNG = np.random.default_rng(0)


def blocks(*out, name="Q4_1"):
    form = GGML_FORMS[name]
    fields = form.split(blocks_of(name, (int(np.prod(out)), NUM_IN), seed=len(out)))
    return BlockTensor({key: jnp.asarray(x.reshape(*out, -1)) for key, x in fields.items()}, form, "float32")


def rows(*out):
    codes = jnp.asarray(RNG.integers(-127, 128, (*out, NUM_IN)), jnp.int8)
    scales, outliers = (jnp.asarray(RNG.uniform(0.5, 1, shape), jnp.float32) for shape in (out, (*out, 3)))
    columns = jnp.asarray([1, 7, NUM_IN], jnp.int32)  # the last place is of none
    return QTensor(codes, scales, SCHEMES["w8a8"].with_outliers(3), "float32", outliers, columns)


def parts():
    heads = NUM_HEADS // KV_HEADS * HEAD_DIM, HEAD_DIM, HEAD_DIM
    forms = "Q4_0", "Q4_0", "Q8_0"
    return RowParts(tuple(blocks(KV_HEADS, n, name=name) for n, name in zip(heads, forms, strict=True)))


FUSED = KV_HEADS, (NUM_HEADS // KV_HEADS + 2) * HEAD_DIM


def wide_values(saved, repeat):
    """Of queries, keys and values on a mesh, by the law of dense leaves."""
    shape = KV_HEADS * repeat, (NUM_HEADS // KV_HEADS // repeat + 2) * HEAD_DIM, NUM_IN
    return widen(packed_values(saved), shape, HEAD_DIM)


def struct_of(saved, make):
    """The matrix of a mesh that is like the one which `make` gives for its shapes."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(make(leaf.shape), leaf.dtype), saved)


def on_mesh(repeat):
    def fused(shape):
        if len(shape) == 1 or shape[0] != KV_HEADS:
            return shape
        heads, num_rows, *rest = shape
        groups = NUM_HEADS // KV_HEADS
        num_rows = {(groups + 2) * HEAD_DIM: (groups // repeat + 2) * HEAD_DIM,
                    groups * HEAD_DIM: groups // repeat * HEAD_DIM}.get(num_rows, num_rows)  # fmt: skip
        return (heads * repeat, num_rows, *rest)

    return fused


@pytest.mark.parametrize("repeat", [1, 2, 4])
@pytest.mark.parametrize("saved", [blocks(*FUSED), rows(*FUSED), parts()], ids=lambda leaf: type(leaf).__name__)
def test_heads_of_packed_rows_are_those_of_their_values(saved, repeat):
    found = from_saved(saved, struct_of(saved, on_mesh(repeat)), HEAD_DIM)
    np.testing.assert_array_equal(packed_values(found), wide_values(saved, repeat))
    assert repeat == 1 or packed_values(found).shape != packed_values(saved).shape
    again = to_saved(found, packed_values(saved).shape, HEAD_DIM)
    jax.tree.map(np.testing.assert_array_equal, again, saved)
    struct = jax.ShapeDtypeStruct(wide_values(saved, repeat).shape, jnp.bfloat16)
    dense = from_saved(saved, struct, HEAD_DIM)
    np.testing.assert_array_equal(dense, wide_values(saved, repeat).astype(jnp.bfloat16))


def test_parts_are_made_of_as_many_parts_of_their_forms():
    struct = parts()
    forms = tuple(part.form for part in struct.parts)
    assert can_be(SavedMatrix(forms, FUSED, None), struct)
    for others in (forms[:2], (*forms, forms[0]), forms[::-1], forms[0]):
        assert not can_be(SavedMatrix(others, FUSED, None), struct)


@pytest.mark.parametrize("saved", [blocks(5), rows(5)], ids=lambda leaf: type(leaf).__name__)
def test_rows_behind_the_vocabulary_stand_for_zeros(saved):
    found = from_saved(saved, struct_of(saved, lambda shape: (8, *shape[1:]) if shape[0] == 5 else shape), HEAD_DIM)
    values = np.asarray(packed_values(found))
    np.testing.assert_array_equal(values[:5], packed_values(saved))
    assert (values[5:] == 0).all()
    jax.tree.map(np.testing.assert_array_equal, to_saved(found, (5, NUM_IN), HEAD_DIM), saved)


def test_values_have_outliers_in_their_columns_and_inputs_in_order():
    matrix = rows(4)
    values = np.asarray(matrix.codes, np.float32) * np.asarray(matrix.scales)[:, None]
    assert (np.asarray(packed_values(matrix)) != values).any()
    values[:, [1, 7]] = np.asarray(matrix.outliers)[:, :2]
    np.testing.assert_array_equal(packed_values(matrix), values)
    order = RNG.permutation(NUM_IN).astype(np.int32)
    plain = blocks(3)
    found = packed_values(BlockTensor(plain.fields, plain.form, "float32", jnp.asarray(order)))
    np.testing.assert_array_equal(found[:, order], packed_values(plain))


def test_rows_that_are_as_many_are_not_taken_for_heads():
    """Of a vocabulary, whose rows are cut."""
    leaf = jnp.arange(8 * 4, dtype=jnp.int32).reshape(8, 4)
    np.testing.assert_array_equal(narrow(leaf, (4, 4), HEAD_DIM), leaf[:4])
