"""Host: `QuantizedFile`: a safetensors file whose quantized weights read as rows of float32."""

from typing import Any

import numpy as np

from checkpoints.errors import CheckpointError, listed
from checkpoints.formats.tensor_file import ColumnFile, TensorFile
from checkpoints.quantized.quantized_weight import Misfit, QuantizedWeight, Scheme

# Scales of activations and of the KV cache, which are not quantized here.
_UNUSED = (".input_scale", ".input_scale_ub", ".input_global_scale", ".activation_scale", ".output_scale")
_UNUSED_KV = (".k_scale", ".v_scale", ".q_scale", ".kv_scale")


def decoded(file: ColumnFile, scheme: Scheme | None, where: str) -> TensorFile:
    """The file itself without a scheme, else a `QuantizedFile` over it; closed where it does not fit the scheme."""
    if scheme is None:
        return file
    try:
        return QuantizedFile(file, scheme, where)
    except CheckpointError:
        file.close()
        raise


class QuantizedFile:
    """A `TensorFile` with the decoded weights in place of the tensors that they are stored as."""

    def __init__(self, file: ColumnFile, scheme: Scheme, where: str) -> None:
        self._file = file
        self.metadata: dict[str, Any] = file.metadata
        self._weights: dict[str, QuantizedWeight] = {}
        problems: list[str] = []
        for name in [name for name, info in file.tensors.items() if scheme.has_codes(info)]:
            try:
                weight = scheme.weight(file, name)
                self._weights[weight.info.name] = weight
            except Misfit as misfit:
                problems.append(str(misfit))
        if problems:
            raise CheckpointError(f"{where}: {len(problems)} quantized weights cannot be decoded{listed(problems)}")
        hidden = {name for weight in self._weights.values() for name in weight.tensors}
        plain = {name: info for name, info in file.tensors.items() if name not in hidden and not _is_unused(name)}
        self.tensors = {name: weight.info for name, weight in self._weights.items()} | plain

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        if name in self._weights:
            return self._weights[name].rows(self._file, start, stop)
        return self._file.read_rows(name, start, stop)

    def close(self) -> None:
        self._file.close()


def _is_unused(name: str) -> bool:
    return name.endswith(_UNUSED) or (name.endswith(_UNUSED_KV) and "attn" in name)
