"""Hostile GGUF files are refused in one sentence, before memory of the claimed size is allocated."""

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.errors import CheckpointError
from checkpoints.formats.gguf import GgufFile
from tests.checkpoints import gguf_builder as build

HUGE = 2**61
ONE = np.ones((2, 32), np.float32)
F32, Q4_0, Q8_K = 0, 2, 15
GOOD = build.build(
    [build.pack("a", ONE), build.pack("b", ONE, "Q8_0")],
    {"general.architecture": "llama", "list": build.Typed(build.ARRAY, ["x", "yy"], build.STRING), "number": 1.5},
)


def tensor(**lies):
    return build.Tensor(**({"name": "w", "shape": (2, 32), "type_id": F32, "data": ONE.tobytes()} | lies))


def pair(key: str, type_id: int, raw: bytes) -> bytes:
    return build.string(key) + struct.pack("<I", type_id) + raw


HOSTILE = {
    "empty": (b"", "is empty"),
    "magic": (build.build(magic=b"GGML"), "does not begin with 'GGUF'"),
    "version": (build.build(version=1), "version 0x1"),
    "big-endian": (build.build(version=3 << 24), "version 0x3000000"),
    "no counts": (build.build()[:12], "incomplete download"),
    "tensors": (build.build(num_tensors=HUGE), f"claims {HUGE} tensors"),
    "pairs": (build.build(num_pairs=HUGE), f"claims {HUGE} key-values"),
    "key length": (build.build(extra_pairs=struct.pack("<Q8x", HUGE), num_pairs=1), f"claims {HUGE} bytes of a key"),
    "string length": (
        build.build(extra_pairs=pair("k", 8, struct.pack("<Q", HUGE)), num_pairs=1),
        "bytes of the value of 'k'",
    ),
    "value type": (build.build(extra_pairs=pair("k", 13, bytes(8)), num_pairs=1), "unknown value type 13"),
    "item type": (
        build.build(extra_pairs=pair("k", 9, struct.pack("<IQ", 99, 1)), num_pairs=1),
        "unknown value type 99",
    ),
    "numbers": (build.build(extra_pairs=pair("k", 9, struct.pack("<IQ", 4, HUGE)), num_pairs=1), "numbers in 'k'"),
    "strings": (build.build(extra_pairs=pair("k", 9, struct.pack("<IQ", 8, HUGE)), num_pairs=1), "strings in 'k'"),
    "arrays": (build.build(extra_pairs=pair("k", 9, struct.pack("<IQ", 9, HUGE)), num_pairs=1), "arrays in 'k'"),
    "string in an array": (
        build.build(extra_pairs=pair("k", 9, struct.pack("<IQQ", 8, 1, HUGE)), num_pairs=1),
        "a string in 'k'",
    ),
    "nesting": (
        build.build(extra_pairs=pair("k", 9, struct.pack("<IQ", 9, 1) * 9), num_pairs=1),
        "nests arrays",
    ),
    "not UTF-8": (
        build.build(extra_pairs=pair("k", 8, struct.pack("<Q", 2) + b"\xff\xff"), num_pairs=1),
        "is not UTF-8",
    ),
    "key twice": (
        build.build(extra_pairs=pair("k", 0, b"1") * 2, num_pairs=2),
        "the key 'k' twice",
    ),
    "tensor twice": (build.build([tensor(), tensor()]), "the tensor 'w' twice"),
    "dims": (build.build([tensor(shape=(1,) * 9)]), "claims 9 dimensions"),
    "dim of 0": (build.build([tensor(shape=(2, 0))]), "dimension of 0"),
    "dim too large": (build.build([tensor(shape=(HUGE,))]), "tensor 'w' ends at byte"),
    "product overflows": (build.build([tensor(shape=(2**32, 2**32))]), "tensor 'w' ends at byte"),
    "type": (build.build([tensor(type_id=4)]), "type 4, which cannot be decoded"),
    "type without decoder": (build.build([tensor(type_id=Q8_K, shape=(1, 256))]), "cannot be decoded"),
    "ragged block": (build.build([tensor(type_id=Q4_0, shape=(2, 33))]), "are not a multiple of Q4_0 blocks"),
    "offset out of range": (build.build([tensor(offset=2**63)]), "tensor 'w' ends at byte"),
    "offset unaligned": (build.build([tensor(offset=4)]), "not a multiple of 32"),
    "overlap": (
        build.build([tensor(offset=0), tensor(name="v", offset=32), tensor(name="u", offset=512)]),
        "tensors 'w' and 'v' overlap",
    ),
    "alignment 0": (build.build([tensor()], {"general.alignment": 0}), "power of two"),
    "alignment not a number": (build.build([tensor()], {"general.alignment": "32"}), "power of two"),
    "alignment huge": (build.build([tensor()], {"general.alignment": 2**31}), "power of two"),
    "split": (build.build([tensor()], {"split.count": 3}), "merge the parts"),
    "truncated data": (build.build([tensor()])[:-1], "tensor 'w' ends at byte"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malformed_file_is_refused_by_name_and_fault(name, tmp_path):
    raw, fault = HOSTILE[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as refusal:
            GgufFile(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(refusal.value)
    assert message.startswith(f"{path}: ")
    assert fault in message
    assert "\n" not in message
    assert peak < 2**20


def test_the_file_that_the_lies_vary_is_accepted(tmp_path):
    (tmp_path / "model.gguf").write_bytes(GOOD)
    file = GgufFile(tmp_path / "model.gguf")
    np.testing.assert_array_equal(file.read_rows("a", 0, 2), ONE)


@given(data=st.data())
def test_damaged_bytes_give_a_refusal_or_a_consistent_file(data, tmp_path_factory):
    raw = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    keep = data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))
    path = tmp_path_factory.getbasetemp() / "fuzz.gguf"
    path.write_bytes(raw[:keep])
    refusal = f"{path}: "
    tracemalloc.start()
    try:
        file = GgufFile(path)
        for info in file.tensors.values():
            assert file.read_rows(info.name, 0, info.num_rows).shape == (info.num_rows, info.row_len)
        file.close()
    except CheckpointError as error:
        refusal = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert refusal.startswith(f"{path}: ")
    assert peak < 2**20
