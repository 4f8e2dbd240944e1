"""Device: `BlockTensor`, a packed matrix whose rows are blocks of codes with their own scales (`BlockForm`), and
`RowParts`, several of these whose rows make one matrix."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax

from pallas_kernels.block_forms.block_form import BlockForm


@partial(jax.tree_util.register_dataclass, data_fields=("fields", "order"), meta_fields=("form", "dtype"))
@dataclass(frozen=True, slots=True)
class BlockTensor:
    """Of one matrix, or of a stack of layers.

    fields: by name, each [*out, blocks · count], [L, *out, …], or L arrays. dtype: the name of that of decoded values.
    order: [L, I], of each layer the input that stands at each place; None: they are in order.
    (In trees of declarations the fields are declarations.)
    """

    fields: dict[str, Any]
    form: BlockForm
    dtype: str
    order: Any = None

    def of_arrays(self) -> "BlockTensor":
        """With one array [L, *out, …] for each field. A matrix that is no layer's is a tuple of one. Raises
        NotImplementedError for L arrays, which would be copied."""
        if not any(isinstance(field, tuple) for field in self.fields.values()):
            return self
        if any(len(field) > 1 for field in self.fields.values()):
            raise NotImplementedError("it reads one array of all layers")
        return replace(self, fields={name: field[0][None] for name, field in self.fields.items()})


@partial(jax.tree_util.register_dataclass, data_fields=("parts",), meta_fields=())
@dataclass(frozen=True, slots=True)
class RowParts:
    """A matrix whose rows (its last output axis) are those of several, such as queries, keys and values of different
    forms."""

    parts: tuple[BlockTensor, ...]
