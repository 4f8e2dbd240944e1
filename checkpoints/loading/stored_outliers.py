"""Host: outliers of packed matrices, as a file has them (`OutlierWeight`)."""

from collections.abc import Collection, Sequence

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.loading.pieces import Fields, Piece
from checkpoints.mapping.load_plan import Assignment
from checkpoints.quantized.quantized_file import QuantizedFile

COLUMNS = "columns"


def read_outliers(file: QuantizedFile, piece: Piece, dtype: np.dtype) -> Fields:
    """Columns [1, K], and their weights [stop - start, K], transformed and cast."""
    name = piece.assignment.info.name
    weights = piece.assignment.transform(file.read_outliers(name, piece.start, piece.stop))
    return {"outliers": weights.astype(dtype), COLUMNS: file.outlier_columns(name)[None]}


def check_columns(file: QuantizedFile, plan: Sequence[Assignment], leaves: Collection[str]) -> None:
    """Raises `CheckpointError` where tensors of one of these leaves of a layer, such as queries and keys, have
    different columns: a product takes its inputs apart once."""
    first = dict[tuple[str, int], str]()
    for assignment in plan:
        if assignment.leaf not in leaves:
            continue
        name = assignment.info.name
        other = first.setdefault((assignment.leaf, assignment.runs[0].lead[0]), name)
        if not np.array_equal(file.outlier_columns(name), file.outlier_columns(other)):
            raise CheckpointError(f"{name} has other outlier columns than {other}, which has the same inputs")
