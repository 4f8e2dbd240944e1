"""Device: `BlockTensor`, a packed matrix whose rows are blocks of codes with their own scales (`BlockForm`), and
`RowParts`, several of these whose rows make one matrix."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from pallas_kernels.block_forms.block_form import BlockForm


@partial(jax.tree_util.register_dataclass, data_fields=("fields",), meta_fields=("form", "dtype"))
@dataclass(frozen=True, slots=True)
class BlockTensor:
    """Of one matrix, or of a stack of layers.

    fields: by name, each [*out, blocks · count], [L, *out, …], or L arrays. dtype: the name of that of decoded values.
    (In trees of declarations the fields are declarations.)
    """

    fields: dict[str, Any]
    form: BlockForm
    dtype: str


@partial(jax.tree_util.register_dataclass, data_fields=("parts",), meta_fields=())
@dataclass(frozen=True, slots=True)
class RowParts:
    """A matrix whose rows (its last output axis) are those of several, such as queries, keys and values of different
    forms."""

    parts: tuple[BlockTensor, ...]
