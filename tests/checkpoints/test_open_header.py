"""Headers and a few small tensors describe quantized weights as whole files do."""

from pathlib import Path

import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.formats.safetensors import SafetensorsFile
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.open_header import HeaderFile
from checkpoints.quantized.config_file import read_config_and_scheme
from checkpoints.quantized.quantized_file import decoded

QUANTIZED = Path("tests/goldens/quantized")
SMALL = ("g_idx", "weight_shape", "weight_scale", "weight_scale_inv", "quant_map", "nested_quant_map")


@pytest.mark.parametrize("name", sorted(path.name for path in QUANTIZED.iterdir()))
def test_a_header_says_what_the_file_has(name):
    file = SafetensorsFile(QUANTIZED / name / "model.safetensors")
    _, scheme = read_config_and_scheme(QUANTIZED / name)
    asked = []

    def fetch(tensor):
        asked.append(tensor)
        return file.read_rows(tensor, 0, file.tensors[tensor].num_rows).tobytes()

    header, whole = decoded(HeaderFile(file.tensors, fetch), scheme, name), decoded(file, scheme, name)
    assert header.tensors == whole.tensors
    assert header.form_of("a.weight") == whole.form_of("a.weight")
    np.testing.assert_equal(header.order_of("a.weight"), whole.order_of("a.weight"))
    assert all(tensor.endswith(SMALL) or ".quant_state." in tensor for tensor in asked)
    assert len(asked) == len(set(asked))
    whole.close()


INFOS = [
    TensorInfo("layers.4.a.g_idx", (4,), "I32", 16),
    TensorInfo("layers.4.a.qweight", (1, 4), "I32", 16),
    TensorInfo("layers.11.a.g_idx", (4,), "I32", 16),
    TensorInfo("layers.2.a.g_idx", (4,), "I32", 16),
    TensorInfo("layers.2.b.g_idx", (4,), "I32", 16),
    TensorInfo("layers.3.b.g_idx", (8,), "I32", 32),
]


def test_the_first_layer_stands_for_those_that_are_alike():
    asked = []

    def fetch(tensor):
        asked.append(tensor)
        return np.arange(infos[tensor].shape[0], dtype=np.int32).tobytes()

    infos = {info.name: info for info in INFOS}
    file = HeaderFile(infos, fetch)
    for name, info in ((name, info) for name, info in infos.items() if name.endswith("g_idx")):
        assert file.read_rows(name, 0, 1).tolist() == [list(range(info.shape[0]))]
    assert sorted(asked) == ["layers.2.a.g_idx", "layers.2.b.g_idx", "layers.3.b.g_idx", "layers.4.a.g_idx"]


@pytest.mark.parametrize(
    ("info", "fault"),
    [
        (TensorInfo("norm.weight", (4,), "F32", 16), "has no values here"),
        (TensorInfo("a.weight_scale_inv", (1024, 1024), "F32", 2**22), "has no values here"),
        (TensorInfo("a.weight_scale", (4,), "F8_E8M0", 4), "has no values here"),
        (TensorInfo("a.g_idx", (4,), "I32", 12), "cannot have 12 bytes"),
    ],
)
def test_other_values_are_not_fetched(info, fault):
    file = HeaderFile({info.name: info}, lambda name: pytest.fail(f"{name} was fetched"))
    with pytest.raises(CheckpointError, match=fault):
        file.read_rows(info.name, 0, 1)
    with pytest.raises(CheckpointError, match="has no values here"):
        file.read_columns(info.name, 0, 1)
