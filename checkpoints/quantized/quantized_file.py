"""Host: `QuantizedFile`: a safetensors file whose quantized weights read as rows of float32."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from checkpoints.errors import CheckpointError, listed
from checkpoints.formats.tensor_file import ColumnFile, TensorFile
from checkpoints.quantized.group_codes import GroupedWeight, OrderedWeight, fields_of
from checkpoints.quantized.outlier_weight import OutlierWeight
from checkpoints.quantized.packed_weight import PackedWeight
from checkpoints.quantized.quantized_weight import Misfit, QuantizedWeight, Scheme
from checkpoints.quantized.row_codes import RowCodedWeight

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

# Scales and zero points of activations and of the KV cache, which are not quantized here.
_UNUSED = (
    ".input_scale",
    ".input_scale_ub",
    ".input_global_scale",
    ".input_zero_point",
    ".activation_scale",
    ".output_scale",
    ".output_zero_point",
)
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
    """A `TensorFile` with the decoded weights in place of the tensors that they are stored as; a `PackedFile`."""

    def __init__(self, file: ColumnFile, scheme: Scheme, where: str) -> None:
        self._file = file
        self.metadata: dict[str, Any] = file.metadata
        self._weights: dict[str, QuantizedWeight] = {}
        # Found once for each weight: its rows are read in many pieces.
        self._forms: dict[str, BlockForm | None] = {}
        self._orders: dict[str, np.ndarray | None] = {}
        problems: list[str] = []
        for name in [name for name, info in file.tensors.items() if scheme.has_codes(info)]:
            try:
                self._add(scheme.weight(file, name), file)
            except Misfit as misfit:
                problems.append(str(misfit))
        if problems:
            raise CheckpointError(f"{where}: {len(problems)} quantized weights cannot be decoded{listed(problems)}")
        hidden = {name for weight in self._weights.values() for name in weight.tensors}
        plain = {name: info for name, info in file.tensors.items() if name not in hidden and not _is_unused(name)}
        self.tensors = {name: weight.info for name, weight in self._weights.items()} | plain

    def _add(self, weight: QuantizedWeight, file: ColumnFile) -> None:
        name = weight.info.name
        if name in self._weights or (name in file.tensors and name not in weight.tensors):
            others = ", ".join(sorted({*weight.tensors, *self._weights.get(name, weight).tensors}))
            raise Misfit(f"{name} is there twice; one is stored as {others}")
        self._weights[name] = weight

    def row_scheme_of(self, name: str) -> str | None:
        """Of a tensor that is a quantized weight with a scale for each row, the name of its scheme."""
        weight = self._weights.get(name)
        return weight.row_scheme if isinstance(weight, RowCodedWeight) else None

    def read_codes(self, name: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes and scales of rows `[start, stop)` of such a weight."""
        weight = self._weights[name]
        assert isinstance(weight, RowCodedWeight)
        return weight.row_codes(self._file, start, stop)

    def num_outliers(self, names: frozenset[str]) -> int:
        """Columns of each of these weights that are not coded. Raises `CheckpointError` where they are not as many."""
        weights = [self._weights[name] for name in names]
        found = {weight.num_outliers if isinstance(weight, OutlierWeight) else 0 for weight in weights}
        if len(found) > 1:
            raise CheckpointError(f"its matrices have different numbers of outliers: {sorted(found)}")
        return max(found, default=0)

    def outlier_columns(self, name: str) -> np.ndarray:
        """Of a weight of a file with `num_outliers`, [K]."""
        weight = self._weights[name]
        assert isinstance(weight, OutlierWeight)
        return weight.outlier_columns(self._file)

    def read_outliers(self, name: str, start: int, stop: int) -> np.ndarray:
        """The weights of these columns, float32 [stop - start, K]."""
        weight = self._weights[name]
        assert isinstance(weight, OutlierWeight)
        return weight.outlier_rows(self._file, start, stop)

    def form_of(self, name: str) -> "BlockForm | None":
        if name not in self._forms:
            weight = self._weights.get(name)
            self._forms[name] = weight.form(self._file) if isinstance(weight, GroupedWeight | PackedWeight) else None
        return self._forms[name]

    def read_fields(self, name: str, start: int, stop: int) -> dict[str, np.ndarray]:
        weight, form = self._weights[name], self.form_of(name)
        assert form is not None
        if isinstance(weight, PackedWeight):
            return weight.fields(self._file, form, start, stop)
        assert isinstance(weight, GroupedWeight)
        found, order = weight.group_codes(self._file, start, stop), self.order_of(name)
        return fields_of(form, found if order is None else replace(found, codes=found.codes[:, order]))

    def order_of(self, name: str) -> np.ndarray | None:
        """Of the inputs of a tensor's fields; None: they are in order."""
        if name not in self._orders:
            weight = self._weights.get(name)
            self._orders[name] = weight.order(self._file) if isinstance(weight, OrderedWeight) else None
        return self._orders[name]

    def row_scheme(self, names: frozenset[str]) -> str | None:
        """The name of the scheme (of `qtensor.ALL_SCHEMES`) in which all these tensors are stored, if any."""
        schemes = set(map(self.row_scheme_of, names))
        if not schemes or None in schemes:
            return None
        if schemes == {"int8", "w8a8"}:  # alike but for the activations
            return "int8"
        return schemes.pop() if len(schemes) == 1 else None

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        if name in self._weights:
            return self._weights[name].rows(self._file, start, stop)
        return self._file.read_rows(name, start, stop)

    def close(self) -> None:
        self._file.close()


def _is_unused(name: str) -> bool:
    return name.endswith(_UNUSED) or (name.endswith(_UNUSED_KV) and "attn" in name)
