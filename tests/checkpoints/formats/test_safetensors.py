"""safetensors files: values equal those written by the package, shards are joined, and false headers are refused."""

import json
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from checkpoints.errors import CheckpointError
from checkpoints.formats.safetensors import SafetensorsFile, ShardedSafetensors


def raw_file(header: object, data: bytes = b"", header_bytes: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if header_bytes is None else header_bytes) + text + data


def entry(dtype="F32", shape=(2, 4), offsets=(0, 32)) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


GOOD = raw_file({"__metadata__": {"format": "pt"}, "w": entry(), "v": entry(shape=(3,), offsets=(32, 44))}, bytes(44))

HOSTILE = {
    "short": (b"1234567", "too short"),
    "header length": (raw_file({}, header_bytes=2**63), "claims a header of 9223372036854775808 bytes"),
    "header beyond the file": (raw_file({"w": entry()}, header_bytes=500), "claims a header of 500 bytes"),
    "not JSON": (raw_file(b"{nope"), "is not valid JSON"),
    "not an object": (raw_file(b"[1]"), "must hold a JSON object"),
    "not UTF-8": (raw_file(b'{"\xff\xfe": 1}'), "is not valid JSON"),
    "deep": (raw_file(b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"), "must have dtype, shape"),
    "deeper": (raw_file(b'{"a":' + b"[" * 100_000), "too many nested values"),
    "wide": (raw_file(b'{"a":[' + b"[],[],{}," * 100_000 + b"[]]}"), "too many nested values"),
    "digits": (raw_file(b'{"a":' + b"9" * 10_000 + b"}"), "is not valid JSON"),
    "name twice": (raw_file(b'{"w": 1, "w": 2}'), "'w' appears twice"),
    "metadata": (raw_file({"__metadata__": {"a": 1}}), "map strings to strings"),
    "no shape": (raw_file({"w": {"dtype": "F32", "data_offsets": [0, 4]}}), "must have dtype, shape"),
    "three offsets": (raw_file({"w": entry(offsets=(0, 16, 32))}, bytes(32)), "must have dtype, shape"),
    "dtype": (raw_file({"w": entry(dtype="F33")}, bytes(32)), "unknown dtype 'F33'"),
    "axes": (raw_file({"w": entry(shape=(1,) * 99, offsets=(0, 4))}, bytes(4)), "at most 8 axes"),
    "negative size": (raw_file({"w": entry(shape=(-2, -4))}, bytes(32)), "each a size"),
    "fractional size": (raw_file({"w": entry(shape=(2.0, 4))}, bytes(32)), "each a size"),
    "huge size": (raw_file({"w": entry(shape=(2**62, 2**62))}, bytes(32)), "each a size"),
    "product": (raw_file({"w": entry(shape=(2**40, 2**40))}, bytes(32)), "needs"),
    "nbytes": (raw_file({"w": entry(offsets=(0, 31))}, bytes(32)), "needs 32 bytes, not [0, 31)"),
    "reversed": (raw_file({"w": entry(offsets=(32, 0))}, bytes(32)), "needs 32 bytes, not [32, 0)"),
    "negative": (raw_file({"w": entry(offsets=(-32, 0))}, bytes(32)), "needs 32 bytes, not [-32, 0)"),
    "beyond": (raw_file({"w": entry(offsets=(32, 64))}, bytes(32)), "incomplete download"),
    "overlap": (raw_file({"w": entry(), "v": entry(offsets=(16, 48))}, bytes(64)), "tensors 'w' and 'v' overlap"),
    "truncated": (GOOD[:-1], "incomplete download"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malformed_file_is_refused_by_name_and_fault(name, tmp_path):
    raw, fault = HOSTILE[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as refusal:
            SafetensorsFile(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(refusal.value).startswith(f"{path}: ")
    assert fault in str(refusal.value)
    assert peak < 2**20 + 4 * len(raw)


@given(data=st.data())
def test_damaged_bytes_give_a_refusal_or_a_consistent_file(data, tmp_path_factory):
    raw = bytearray(GOOD)
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    refusal = f"{path}: "
    try:
        file = SafetensorsFile(path)
        for info in file.tensors.values():
            assert file.read_rows(info.name, 0, info.num_rows).shape == (info.num_rows, info.row_len)
        file.close()
    except CheckpointError as error:
        refusal = str(error)
    assert refusal.startswith(f"{path}: ")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_])
def test_rows_are_those_that_were_saved(dtype, tmp_path):
    array = (np.arange(30) % 7).reshape(2, 5, 3).astype(dtype)
    save_file({"w": array, "v": array[0, 0], "scalar": array[0, 0, :1].reshape(())}, tmp_path / "a.safetensors")
    file = SafetensorsFile(tmp_path / "a.safetensors")
    rows = np.concatenate([file.read_rows("w", 0, 3), file.read_rows("w", 3, 10)])
    assert rows.dtype == dtype
    np.testing.assert_array_equal(rows, array.reshape(10, 3))
    np.testing.assert_array_equal(file.read_rows("v", 0, 1), array[0, :1])
    assert file.read_rows("scalar", 0, 1).shape == (1, 1)
    assert file.tensors["w"].shape == (2, 5, 3)
    with pytest.raises(IndexError):
        file.read_rows("w", 9, 11)


def test_an_empty_tensor_has_no_bytes_and_overlaps_nothing(tmp_path):
    header = {"w": entry(), "inside": entry(shape=(0, 4), offsets=(16, 16)), "end": entry(shape=(0,), offsets=(32, 32))}
    (tmp_path / "a.safetensors").write_bytes(raw_file(header, bytes(32)))
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert file.read_rows("inside", 0, 0).shape == (0, 4)
    assert file.read_rows("end", 0, 1).shape == (1, 0)


@pytest.fixture
def sharded(tmp_path):
    """A folder of two shards, and a function that writes its index."""
    save_file({"a": np.full((2, 2), 1.0, np.float32)}, tmp_path / "model-1.safetensors")
    save_file({"b": np.full((2, 2), 2.0, np.float32)}, tmp_path / "model-2.safetensors")

    def write(weight_map: object):
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": weight_map}))
        return index

    return write


def test_shards_are_read_as_one(sharded):
    file = ShardedSafetensors(sharded({"a": "model-1.safetensors", "b": "model-2.safetensors"}))
    assert list(file.tensors) == ["a", "b"]
    assert [file.read_rows(name, 0, 1)[0, 0] for name in "ab"] == [1, 2]
    file.close()


@pytest.mark.parametrize(
    ("weight_map", "fault"),
    [
        ({"a": "../model-1.safetensors"}, "only .safetensors files in its folder"),
        ({"a": "/etc/passwd"}, "only .safetensors files in its folder"),
        ({"a": "..\\model-1.safetensors"}, "only .safetensors files in its folder"),
        ({"a": "config.json"}, "only .safetensors files in its folder"),
        ({"a": "\ud800.safetensors"}, r"names the file '\\ud800.safetensors'; only .safetensors files in its folder"),
        ({"a": "model-3.safetensors"}, "cannot be opened"),
        ({"a": 3}, "must map tensor names"),
        ({}, "must map tensor names"),
        ([], "must map tensor names"),
        ({"c": "model-1.safetensors"}, "lists tensor 'c' in model-1.safetensors, which does not hold it"),
        ({"a": "model-2.safetensors", "b": "model-1.safetensors"}, "lists tensor 'a' in model-2.safetensors"),
    ],
)
def test_an_index_that_lies_is_refused(sharded, weight_map, fault):
    with pytest.raises(CheckpointError, match=fault):
        ShardedSafetensors(sharded(weight_map))


@given(data=st.data())
def test_a_damaged_index_gives_a_refusal_or_the_files_it_names(data, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    save_file({"a": np.zeros((2, 2), np.float32)}, folder / "one.safetensors")
    names = st.sampled_from(["one.safetensors", "one", "one.safetensors\n"]) | st.text().map(
        lambda s: s + ".safetensors"
    )
    weight_map = data.draw(st.just({"a": "one.safetensors"}) | st.dictionaries(st.text(), names, min_size=1))
    raw = bytearray(json.dumps({"metadata": {}, "weight_map": weight_map}).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    index = folder / "fuzz.index.json"
    index.write_bytes(raw[: data.draw(st.just(len(raw)) | st.integers(0, len(raw)))])
    refusal = f"{folder}/"
    try:
        file = ShardedSafetensors(index)
        assert list(file.tensors) == ["a"]
        file.close()
    except CheckpointError as error:
        refusal = str(error)
    assert refusal.startswith(f"{folder}/")


def test_a_tensor_in_two_shards_is_refused(sharded, tmp_path):
    save_file({"a": np.zeros((2, 2), np.float32), "b": np.zeros((2, 2), np.float32)}, tmp_path / "model-2.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor 'a' is in model-2.safetensors and in another"):
        ShardedSafetensors(sharded({"a": "model-1.safetensors", "b": "model-2.safetensors"}))
