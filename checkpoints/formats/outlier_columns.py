"""Host: `check_outlier_columns`: which columns of a matrix can be its outliers."""

import numpy as np

from checkpoints.errors import CheckpointError


def check_outlier_columns(name: str, columns: np.ndarray, num_in: int) -> None:
    """Raises `CheckpointError` unless columns [K] are ascending inputs; places that are left name the one after the
    last. name: of the array, for the message."""
    used = columns[columns != num_in]
    is_first = (columns[: len(used)] == used).all()
    if not is_first or (np.diff(used) <= 0).any() or (used < 0).any() or (used > num_in).any():
        raise CheckpointError(f"{name} must be ascending inputs of {num_in}, then {num_in}s")
