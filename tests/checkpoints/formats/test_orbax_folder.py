"""Incomplete parts are refused, and an index is checked before use."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from checkpoints.errors import CheckpointError
from checkpoints.formats import orbax_folder
from checkpoints.formats.orbax_folder import OrbaxFile, load_part, remove_part, save_part
from checkpoints.formats.orbax_index import write_index

WEIGHTS = np.random.default_rng(0).standard_normal((64, 48), np.float32).astype(ml_dtypes.bfloat16)


def saved(root):
    save_part(root, "outside", {"embed": WEIGHTS, "norm": np.arange(5, dtype=np.float32)})
    write_index(root, {"outside": {"embed": ((64, 48), "bfloat16"), "norm": ((5,), "float32")}})
    return root


def test_what_was_saved_is_read_row_by_row(tmp_path):
    file = OrbaxFile(saved(tmp_path))
    assert {name: (info.shape, info.dtype, info.nbytes) for name, info in file.tensors.items()} == {
        "outside/embed": ((64, 48), "bfloat16", 6144),
        "outside/norm": ((5,), "float32", 20),
    }
    np.testing.assert_array_equal(file.read_rows("outside/embed", 3, 9), WEIGHTS[3:9])
    np.testing.assert_array_equal(file.read_rows("outside/norm", 0, 1), [np.arange(5)])
    with pytest.raises(IndexError):
        file.read_rows("outside/embed", 0, 65)


def test_a_part_may_be_written_again_and_removed(tmp_path):
    saved(tmp_path)
    save_part(tmp_path, "outside", {"embed": WEIGHTS + 1, "norm": np.zeros(5, np.float32)})
    np.testing.assert_array_equal(OrbaxFile(tmp_path).read_rows("outside/embed", 0, 64), WEIGHTS + 1)
    (tmp_path / "outside.orbax-checkpoint-tmp").mkdir()
    remove_part(tmp_path, "outside")
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]


@pytest.mark.parametrize("chunk_bytes", [256, 2**20])
def test_the_size_of_the_chunks_changes_nothing(chunk_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(orbax_folder, "CHUNK_BYTES", chunk_bytes)
    mesh = jax.make_mesh((4,), ("tensor",), (AxisType.Auto,))
    rows, columns = (NamedSharding(mesh, spec) for spec in (P("tensor"), P(None, "tensor")))
    save_part(tmp_path, "p", {"w": jax.device_put(WEIGHTS, rows)})
    read = load_part(tmp_path, "p", {"w": jax.ShapeDtypeStruct((64, 48), jnp.bfloat16, sharding=columns)})
    np.testing.assert_array_equal(np.asarray(read["w"]), WEIGHTS)


def test_a_truncated_part_is_refused(tmp_path):
    # One array alone: another one might still be read when Orbax has closed its event loop.
    save_part(tmp_path, "outside", {"embed": WEIGHTS})
    write_index(tmp_path, {"outside": {"embed": ((64, 48), "bfloat16")}})
    largest = max(tmp_path.rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    largest.write_bytes(largest.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"outside: cannot be restored .*convert again"):
        OrbaxFile(tmp_path).read_rows("outside/embed", 0, 1)


def test_a_part_of_another_shape_than_the_index_says_is_refused(tmp_path):
    write_index(saved(tmp_path), {"outside": {"embed": ((64, 49), "bfloat16"), "norm": ((5,), "float32")}})
    with pytest.raises(CheckpointError, match="outside: cannot be restored"):
        OrbaxFile(tmp_path).read_rows("outside/embed", 0, 1)


def index(**leaves):
    return json.dumps({"format": "jaxserve-orbax-1", "parts": {"outside": leaves}})


HOSTILE = {
    "not JSON": ("{", "is not valid JSON"),
    "another format": ('{"format": "orbax", "parts": {}}', "is not an index in the format jaxserve-orbax-1"),
    "no parts": ('{"format": "jaxserve-orbax-1"}', "is not an index"),
    "leaves the folder": ('{"format": "jaxserve-orbax-1", "parts": {"../x": {}}}', "'../x' is not a part"),
    "no shape": (index(w={"dtype": "float32"}), "outside/w must have a shape and a dtype"),
    "dtype": (index(w={"shape": [1], "dtype": "object"}), "outside/w must have a shape and a dtype"),
    "name": (index(**{"a/b": {"shape": [1], "dtype": "float32"}}), "outside/a/b must have"),
    "negative size": (index(w={"shape": [-1], "dtype": "float32"}), "each a size from 1 to 2**48"),
    "huge size": (index(w={"shape": [2**60], "dtype": "float32"}), "each a size from 1 to 2**48"),
    "no size": (index(w={"shape": [True], "dtype": "float32"}), "each a size from 1 to 2**48"),
    "axes": (index(w={"shape": [1] * 9, "dtype": "float32"}), "at most 8 axes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malformed_index_is_refused_by_its_fault(name, tmp_path):
    text, fault = HOSTILE[name]
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(CheckpointError) as refusal:
        OrbaxFile(tmp_path)
    assert str(refusal.value).startswith(str(tmp_path / "index.json"))
    assert fault in str(refusal.value)


def test_a_folder_is_given_relative_to_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.arange(6, dtype=np.float32)
    save_part(Path("made") / "here", "a", {"x": values})
    (found,) = load_part(Path("made") / "here", "a", {"x": np.zeros_like(values)}).values()
    np.testing.assert_array_equal(found, values)
    assert (tmp_path / "made" / "here" / "a").is_dir()
