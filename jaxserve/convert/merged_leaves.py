"""Host: `MergedLeaves`: a model with an adapter added to its matrices: w + b · a."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32

from checkpoints.adapters.adapter_modules import PARTS
from checkpoints.adapters.low_rank import AdapterWeights
from checkpoints.loading.leaf_reader import Leaves
from checkpoints.mapping.parts import Part
from checkpoints.mapping.rules import Rule
from jaxserve.convert.folded_leaves import layer_number


class MergedLeaves:
    """Leaves of a model (`Leaves`) in float32, with the adapter. rules: of the "hf" spelling, by whose rows adapters
    are stored. shapes: (outputs, inputs) of matrices by their names in the adapter."""

    def __init__(
        self, leaves: Leaves, adapter: AdapterWeights, rules: Sequence[Rule], shapes: Mapping[str, tuple[int, int]]
    ) -> None:
        self._leaves, self._adapter, self._shapes = leaves, adapter, shapes
        self._rules = [rule for rule in rules if rule.is_stacked]

    def read(self, part: Part, name: str) -> np.ndarray:
        """See `Leaves`."""
        values = self._leaves.read(part, name)
        if part.index is None:
            return values
        layer = layer_number(part)
        for rule in self._rules:
            added = self._added(layer, rule.tensor_name(layer)) if rule.leaf(layer) == part.leaves[name] else None
            for run in () if added is None else rule.runs(layer, (1, *values.shape)):
                rows = values[run.lead[1:]][run.target : run.target + run.num_rows]
                rows += added[run.source : run.source + run.num_rows]
        return values

    def _added(self, layer: int, tensor: str) -> Float32[np.ndarray, "out in"] | None:
        """To a tensor of a layer; None: nothing."""
        module = tensor.partition(f"layers.{layer}.")[2].removesuffix(".weight")
        parts = [(self._shapes[part], self._adapter.matrices.get((layer, part))) for part in PARTS.get(module, ())]
        if all(pair is None for _, pair in parts):
            return None
        return np.concatenate(
            [np.zeros(shape, np.float32) if pair is None else pair.b @ pair.a for shape, pair in parts]
        )


def adapter_digest(adapter: AdapterWeights) -> str:
    """A name for an adapter's values."""
    digest = hashlib.sha256()
    for (layer, part), pair in adapter.matrices.items():
        digest.update(f"{layer} {part} {pair.a.shape}".encode())
        digest.update(pair.a.tobytes() + pair.b.tobytes())
    return digest.hexdigest()[:16]
