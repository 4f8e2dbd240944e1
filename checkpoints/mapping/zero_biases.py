"""Host: `is_zero_bias`: biases of zeros, which add nothing where the model has no place for them.

AutoGPTQ gives every linear layer that it quantizes a bias, zeros where the model has none.
"""

from checkpoints.formats.tensor_file import TensorFile, TensorInfo

_BIAS, _WEIGHT = ".bias", ".weight"


def is_zero_bias(file: TensorFile, info: TensorInfo) -> bool:
    """Whether a tensor is the bias of a matrix of the file, and all its values are zero, which it reads to know."""
    matrix = file.tensors.get(info.name.removesuffix(_BIAS) + _WEIGHT)
    if not info.name.endswith(_BIAS) or matrix is None or len(matrix.shape) != 2 or info.shape != matrix.shape[:1]:
        return False
    return not file.read_rows(info.name, 0, info.num_rows).any()
