"""GGUF files: tensors read back as written, whole or in pieces, for every type that can be decoded."""

from itertools import pairwise

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from checkpoints.formats.gguf import GgufFile
from tests.checkpoints import gguf_builder as build

BLOCK_TYPES = [
    kind.name for kind in GGML_QUANT_SIZES if hasattr(quants, kind.name) and kind is not GGMLQuantizationType.BF16
]
NUM_ROWS = 7


def stored_rows(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Rows `[7, bytes]` of a type, quantized if the package supports it, else random; and the values per row."""
    type_id = GGMLQuantizationType[kind]
    block_len, block_bytes = GGML_QUANT_SIZES[type_id]
    values = rng.standard_normal((NUM_ROWS, 2 * block_len), np.float32)
    try:
        return quants.quantize(values, type_id).reshape(NUM_ROWS, -1), 2 * block_len
    except NotImplementedError:
        return rng.integers(0, 256, (NUM_ROWS, 2 * block_bytes), np.uint8), 2 * block_len


@pytest.mark.parametrize("kind", BLOCK_TYPES)
def test_pieces_of_every_block_type_equal_the_whole(kind, tmp_path):
    stored, row_len = stored_rows(kind, np.random.default_rng(0))
    type_id = GGMLQuantizationType[kind]
    tensor = build.Tensor("w", (NUM_ROWS, row_len), int(type_id), stored.tobytes())
    file = GgufFile(build.write(tmp_path / "a.gguf", [tensor]))
    with np.errstate(all="ignore"):
        whole = quants.dequantize(stored, type_id)
    assert whole.shape == (NUM_ROWS, row_len)
    for cuts in ([0, 7], [0, 1, 2, 3, 4, 5, 6, 7], [0, 3, 7], [0, 0, 5, 7]):
        pieces = [file.read_rows("w", a, b) for a, b in pairwise(cuts)]
        assert {piece.dtype for piece in pieces} == {np.dtype(np.float32)}
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    file.close()


def test_the_walk_over_block_types_misses_none():
    assert {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4"} <= set(BLOCK_TYPES)


@pytest.mark.parametrize(("kind", "dtype"), [("F32", np.float32), ("F16", np.float16), ("BF16", ml_dtypes.bfloat16)])
def test_plain_types_keep_their_dtype(kind, dtype, tmp_path):
    array = np.arange(24).reshape(2, 3, 4) / 8
    file = GgufFile(build.write(tmp_path / "a.gguf", [build.pack("w", array, kind)]))
    rows = file.read_rows("w", 1, 5)
    assert rows.dtype == dtype
    np.testing.assert_array_equal(rows.astype(np.float64), array.reshape(6, 4)[1:5])
    assert file.tensors["w"].shape == (2, 3, 4)
    assert file.tensors["w"].num_rows == 6
    file.close()
    assert rows[0, 0] == array[0, 1, 0], "rows must outlive the file"


def test_vectors_are_one_row_and_rows_are_counted(tmp_path):
    file = GgufFile(build.write(tmp_path / "a.gguf", [build.pack("v", np.arange(5))]))
    np.testing.assert_array_equal(file.read_rows("v", 0, 1), [[0, 1, 2, 3, 4]])
    with pytest.raises(IndexError, match=r"rows \[0, 2\) of tensor 'v', which has 1"):
        file.read_rows("v", 0, 2)


def test_every_kind_of_metadata_comes_back(tmp_path):
    scalars = {0: 255, 1: -128, 2: 65535, 3: -32768, 4: 2**32 - 1, 5: -(2**31), 6: 0.5, 7: True, 10: 2**64 - 1,
               11: -(2**63), 12: 0.1}  # fmt: skip
    metadata = {f"scalar.{id_}": build.Typed(id_, value) for id_, value in scalars.items()}
    metadata |= {f"array.{id_}": build.Typed(build.ARRAY, [value, value], id_) for id_, value in scalars.items()}
    inner = build.Typed(build.ARRAY, [1, 2], 4)
    metadata |= {
        "text": "grüße 日本",
        "texts": build.Typed(build.ARRAY, ["", "a", "日"], build.STRING),
        "nested": build.Typed(build.ARRAY, [inner, inner], build.ARRAY),
    }
    read = GgufFile(build.write(tmp_path / "a.gguf", [], metadata)).metadata
    assert list(read) == list(metadata)
    assert (read["text"], read["texts"]) == ("grüße 日本", ["", "a", "日"])
    assert [item.tolist() for item in read["nested"]] == [[1, 2], [1, 2]]
    for id_, value in scalars.items():
        assert read[f"scalar.{id_}"] == value
        assert type(read[f"scalar.{id_}"]) is type(value)
        assert read[f"array.{id_}"].tolist() == [value, value]


def test_a_file_of_the_packages_own_writer_is_read(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_block_count(3)
    writer.add_token_list(["<s>", "a"])
    writer.add_tensor("w", np.eye(4, 6, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(tmp_path / "a.gguf")
    assert file.metadata["llama.block_count"] == 3
    assert file.metadata["tokenizer.ggml.tokens"] == ["<s>", "a"]
    np.testing.assert_array_equal(file.read_rows("w", 0, 4), np.eye(4, 6))


def test_a_vocabulary_of_262144_entries_is_read_whole(tmp_path):
    metadata = {
        "tokens": build.Typed(build.ARRAY, [f"▁token{i}" for i in range(262144)], build.STRING),
        "scores": build.Typed(build.ARRAY, [0.0] * 262144, 6),
    }
    path = build.write(tmp_path / "a.gguf", [], metadata)
    read = GgufFile(path).metadata
    assert len(read["tokens"]) == len(read["scores"]) == 262144
    assert read["tokens"][262143] == "▁token262143"
