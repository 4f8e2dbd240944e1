"""Device: `ColumnRuns`: the output columns of a site as thread blocks divide them."""

from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pallas_kernels.lora_matmul.adapter_layout import Site

COLUMNS = 512
"""Of a thread block: four for each thread and token, in registers."""


class ColumnRuns(NamedTuple):
    """Chunks of W2 columns, those of all parts side by side, and runs of up to `length` chunks of one part."""

    length: int
    ends: tuple[int, ...]
    """Of each part's chunks."""

    @property
    def begins(self) -> tuple[int, ...]:
        return (0, *self.ends[:-1])

    @property
    def run_ends(self) -> list[int]:
        """Of each part's runs."""
        return list(
            accumulate(-(-(end - begin) // self.length) for begin, end in zip(self.begins, self.ends, strict=True))
        )

    def locate(self, run: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The part of a run, its first chunk, and the end of the part's chunks."""
        part, first, end = jnp.int32(0), run * self.length, jnp.int32(self.ends[0])
        for i, first_run in enumerate(self.run_ends[:-1], 1):
            is_later = run >= first_run
            part = jnp.where(is_later, i, part)
            first = jnp.where(is_later, self.begins[i] + (run - first_run) * self.length, first)
            end = jnp.where(is_later, self.ends[i], end)
        return part, first, end


def column_runs(site: Site) -> ColumnRuns:
    ends = accumulate(-(-part.num_outputs // site.width) for part in site.parts)
    return ColumnRuns(max(COLUMNS // site.width, 1), tuple(ends))
