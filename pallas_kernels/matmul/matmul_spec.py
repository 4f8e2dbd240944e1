"""Device: `MatmulSpec`: the arguments of `matmul` that are fixed when it is compiled."""

from dataclasses import dataclass
from typing import Any

import jax

from pallas_kernels.matmul.activations import ACTIVATIONS
from pallas_kernels.matmul.block_sizes import BlockSizes

Stacked = jax.Array | tuple[jax.Array, ...]
"""Weights of layers: one array, or one for each layer."""


@dataclass(frozen=True)
class MatmulSpec:
    """What one product computes, and how. Hashable; one spec serves every layer.

    Raises:
      ValueError: there is no such activation.
    """

    activation: str | None = None
    """Of the gate, a name in `ACTIVATIONS`: y = activation(x · gateᵀ) · (x · upᵀ); None: there is no gate."""
    out_dtype: Any = None
    """Of the result: float32 where several devices' results are added; None: that of x."""
    divided_axis: int | None = None
    """Of a layer's matrix [*out, I]: the axis that is divided over all devices of the mesh, -1 for the inputs. None: it
    is whole on each device, or nothing is known."""
    backend: str = "auto"
    """One of `dispatch.BACKENDS`."""
    block: BlockSizes | None = None
    """Block sizes of the back end; None selects measured sizes, or those of the back end's rule."""

    def __post_init__(self) -> None:
        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise ValueError(f"activation={self.activation!r} is unknown; use one of {', '.join(ACTIVATIONS)}")

    @property
    def has_divided_columns(self) -> bool:
        """An output axis other than the first is divided."""
        return self.divided_axis not in (None, 0, -1)

    @property
    def num_parts(self) -> int:
        """Matrices of a layer: 2 with a gate."""
        return 1 if self.activation is None else 2
