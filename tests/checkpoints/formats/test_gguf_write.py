"""GGUF files that are written are read by this project and by the `gguf` package, and appear when they are complete."""

import gguf
import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.formats.gguf import GgufFile
from checkpoints.formats.gguf_write import ALIGNMENT, write_gguf
from checkpoints.formats.tensor_file import TensorInfo

METADATA = {
    "general.architecture": "llama",
    "a.flag": True,
    "a.size": 4096,
    "a.number": 1e-5,
    "a.texts": ["", "é", "<s>"],
    "a.none": [],
    "a.ids": [1, -3],
    "a.numbers": [0.5, -2.0],
    "a.array": np.array([3, 4], np.int64),
}
VALUES = {
    "vector": np.arange(5, dtype=np.float32),
    "matrix": np.arange(24, dtype=np.float32).reshape(3, 8),
    "after": np.ones((2, 1, 3), np.float32),
}
JOB = {"source": "a"}
INFOS = [TensorInfo(name, values.shape, "F32", values.nbytes) for name, values in VALUES.items()]


def pieces(info):
    """A tensor row by row."""
    return iter(VALUES[info.name].reshape(-1, info.row_len))


def test_what_is_written_is_read_here_and_elsewhere(tmp_path):
    write_gguf(tmp_path / "m.gguf", METADATA, INFOS, pieces, JOB)
    file = GgufFile(tmp_path / "m.gguf")
    try:
        assert file.metadata.keys() == METADATA.keys()
        for key, value in METADATA.items():
            found = np.asarray(file.metadata[key]).tolist()
            assert found == (pytest.approx(value) if isinstance(value, float) else np.asarray(value).tolist())
        for name, values in VALUES.items():
            info = file.tensors[name]
            assert info.shape == values.shape
            found = file.read_rows(name, 0, info.num_rows)
            np.testing.assert_array_equal(found, values.reshape(info.num_rows, -1))
    finally:
        file.close()
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert {key: field.contents() for key, field in reader.fields.items() if key in ("a.texts", "a.ids", "a.size")} == {
        key: METADATA[key] for key in ("a.texts", "a.ids", "a.size")
    }
    for tensor in reader.tensors:
        assert tensor.data_offset % ALIGNMENT == 0
        np.testing.assert_array_equal(tensor.data, VALUES[tensor.name])


def test_an_interrupted_file_is_not_there_and_goes_on_after_the_last_complete_tensor(tmp_path):
    made = list[str]()

    def broken(info):
        made.append(info.name)
        yield VALUES[info.name].reshape(-1)[:4]
        if info.name == "matrix":
            raise KeyboardInterrupt
        yield VALUES[info.name].reshape(-1)[4:]

    def noting(info):
        made.append(info.name)
        return pieces(info)

    path = tmp_path / "m.gguf"
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt):
        write_gguf(path, METADATA, INFOS, broken, JOB)
    assert path.read_bytes() == b"before"
    write_gguf(path, METADATA, INFOS, noting, JOB)
    assert made == ["vector", "matrix", "matrix", "after"]
    assert [file.name for file in tmp_path.iterdir()] == ["m.gguf"]
    write_gguf(tmp_path / "whole.gguf", METADATA, INFOS, pieces, JOB)
    assert path.read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_another_header_is_another_job(tmp_path):
    def broken(info):
        yield from pieces(info) if info.name == "vector" else [][0]

    with pytest.raises(IndexError):
        write_gguf(tmp_path / "m.gguf", METADATA, INFOS, broken, JOB)
    with pytest.raises(CheckpointError, match=r"different conversion \(different header\).* start over"):
        write_gguf(tmp_path / "m.gguf", METADATA | {"a.size": 4097}, INFOS, pieces, JOB)


def test_false_declarations_and_values_of_other_kinds_are_refused(tmp_path):
    with pytest.raises(ValueError, match="vector has 16 bytes, not 20"):
        write_gguf(tmp_path / "m.gguf", {}, INFOS, lambda info: [VALUES[info.name].reshape(-1)[:4]], JOB)
    for value in (None, {"a": 1}, np.zeros((2, 2), np.float32), [None]):
        with pytest.raises(ValueError, match="'key' is"):
            write_gguf(tmp_path / "m.gguf", {"key": value}, [], pieces, JOB)
    assert not list(tmp_path.iterdir())
