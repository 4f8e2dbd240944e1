"""Device: the block formats of GGUF files, as ggml defines them (ggml-common.h, ggml-quants.c)."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from pallas_kernels.block_forms.block_form import BlockForm, Field, Fields, Plane, Scales

Halves = tuple[jax.Array, jax.Array]
_K_LEN = 256  # inputs of a block of the K formats


def _plain(fields: Fields, real: Any) -> Scales:
    return Scales(fields["scales"].astype(real))


def _with_minimum(fields: Fields, real: Any) -> Scales:
    return Scales(fields["scales"].astype(real), fields["minima"].astype(real))


def _of_bytes(fields: Fields, real: Any) -> Scales:
    """A block's scale times a group's, an integer of 8 bits."""
    return Scales(_times(fields["block_scales"], fields["group_scales"], real))


def _powers_of_two(fields: Fields, real: Any) -> Scales:
    """2^(code - 128) of codes of 8 bits: half of E8M0's numbers, for values that are twice those of E2M1. Those of the
    codes 0 and 1 are subnormal: 0 here, as most devices take them. So weights below 2^-123 are 0."""
    exponents = jnp.maximum(fields["exponents"].astype(jnp.int32) - 1, 0)  # of float32
    return Scales(lax.bitcast_convert_type(exponents << 23, jnp.float32).astype(real))


def _of_six_bits(fields: Fields, real: Any) -> Scales:
    """Scale and minimum of 8 groups in 12 bytes: 6 bits of the first four groups' in each of 8 bytes, whose two other
    bits complete those of the last four, whose lower halves are in the last four bytes."""
    packed = fields["group_scales"].astype(jnp.int32)
    by_block = packed.reshape(*packed.shape[:-1], -1, 3, 4)
    parts = six_bits(*(by_block[..., i, :] for i in range(3)))
    scales, minima = (jnp.concatenate(part, axis=-1).reshape(*packed.shape[:-1], -1) for part in parts)
    return Scales(_times(fields["block_scales"], scales, real), -_times(fields["block_minima"], minima, real))


def six_bits(first: jax.Array, second: jax.Array, third: jax.Array) -> tuple[Halves, Halves]:
    """Scales and minima, those of the first four groups and of the last four. first, second, third: four bytes each, of
    any shape."""
    scales = first & 63, (third & 15) | ((first >> 6) << 4)
    return scales, (second & 63, (third >> 4) | ((second >> 6) << 4))


def _times(of_blocks: jax.Array, of_groups: jax.Array, real: Any) -> Float[Array, "*out G"]:
    blocks = of_blocks.astype(real)[..., None]
    return (blocks * of_groups.astype(real).reshape(*blocks.shape[:-1], -1)).reshape(of_groups.shape)


def _half(name: str) -> Field:
    return Field(name, "float16", 1)


def _small(name: str, *fields: Field, planes: tuple[Plane, ...], zero: int = 0) -> BlockForm:
    """Blocks of 32 inputs with one scale."""
    has_minimum = any(field.name == "minima" for field in fields)
    return BlockForm(name, 32, fields, planes, 32, _with_minimum if has_minimum else _plain, zero)


_NIBBLES, _FIFTH_BITS = Field("nibbles", "uint8", 16), Field("fifth_bits", "uint8", 4)
_OF_NIBBLES = (Plane("nibbles", 4, 16),)
_OF_FIVE = (*_OF_NIBBLES, Plane("fifth_bits", 1, 1))
_DOUBLE_FP4 = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
_K_NIBBLES, _SIX_BITS = Field("nibbles", "uint8", 128), Field("group_scales", "uint8", 12)
_K_SCALES = (_half("block_scales"), _half("block_minima"), _SIX_BITS)

GGML_FORMS = {
    form.name: form
    for form in (
        _small("Q8_0", _half("scales"), Field("codes", "int8", 32), planes=(Plane("codes", 8, 32),)),
        _small("Q4_0", _half("scales"), _NIBBLES, planes=_OF_NIBBLES, zero=8),
        _small("Q4_1", _half("scales"), _half("minima"), _NIBBLES, planes=_OF_NIBBLES),
        _small("Q5_0", _half("scales"), _FIFTH_BITS, _NIBBLES, planes=_OF_FIVE, zero=16),
        _small("Q5_1", _half("scales"), _half("minima"), _FIFTH_BITS, _NIBBLES, planes=_OF_FIVE),
        BlockForm(
            "MXFP4",
            32,
            (Field("exponents", "uint8", 1), _NIBBLES),
            _OF_NIBBLES,
            32,
            _powers_of_two,
            values=(*_DOUBLE_FP4, *(0.0 - value for value in _DOUBLE_FP4)),  # no negative zero
        ),
        BlockForm("Q4_K", _K_LEN, (*_K_SCALES, _K_NIBBLES), (Plane("nibbles", 4, 32),), 32, _of_six_bits),
        BlockForm(
            "Q5_K",
            _K_LEN,
            (*_K_SCALES, Field("fifth_bits", "uint8", 32), _K_NIBBLES),
            (Plane("nibbles", 4, 32), Plane("fifth_bits", 1, 32)),
            32,
            _of_six_bits,
        ),
        BlockForm(
            "Q6_K",
            _K_LEN,
            (_K_NIBBLES, Field("bit_pairs", "uint8", 64), Field("group_scales", "int8", 16), _half("block_scales")),
            (Plane("nibbles", 4, 64), Plane("bit_pairs", 2, 32)),
            16,
            _of_bytes,
            zero=32,
        ),
    )
}
"""By the names of tensor types."""
