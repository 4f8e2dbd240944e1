"""What is reported of a model before it is loaded equals what loading it gives."""

import json
import math
import shutil
from dataclasses import asdict

import jax
import pytest

from checkpoints.fetch.hf_hub_header import HubHeader
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve.analysis import inspect_model as module
from jaxserve.analysis.inspect_model import inspect_model
from jaxserve.analysis.sharded_sizes import device_share, local_devices
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from tests.support.golden_data import FAMILIES, checkpoint
from tests.support.tiny_engines import tiny_engine


def inspect(model, num_devices=None, **options):
    return inspect_model(EngineConfig.create(str(model), **options), None, num_devices)


def test_figures_of_a_known_model():
    found = inspect("llama-3-8b")
    assert found.num_params == 8_030_261_248
    assert found.dtype == "bfloat16"
    assert found.kv.bytes_per_token == 131_072
    assert found.kv.sequence_bytes == {1024: 2**27, 8192: 2**30}
    assert found.kv.sequence_pages == {1024: 16, 8192: 128}
    assert found.stored_bytes is None
    assert found.tokenizer is None
    parts = {part.name: part.num_params for part in found.parts}
    assert parts["embedding"] == parts["head"] == 128_256 * 4096
    assert parts["norms"] == 65 * 4096


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_are_those_of_the_loaded_model(family):
    found = inspect(checkpoint(family))
    runner = tiny_engine(family).parts.runner
    leaves = jax.tree.leaves(runner.params)
    assert found.loaded_bytes == sum(leaf.nbytes for leaf in leaves)
    padding = sum(
        math.prod(leaf.shape[1:]) * (leaf.shape[0] - found.architecture.vocab_size)
        for name, leaf in runner.params.items()
        if name in ("embed", "lm_head")
    )
    assert found.num_params == sum(leaf.size for leaf in leaves) - padding
    file = checkpoint(family) / "model.safetensors"
    assert 0 < file.stat().st_size - found.stored_bytes < 20_000  # its header
    assert found.stored_bytes == 4 * found.num_params == sum(part.stored_bytes for part in found.parts)


def test_a_rope_with_a_second_table_is_called_scaled(tmp_path):
    """Phi-4-mini's first table, up to its original context, is all ones."""
    config = json.loads((checkpoint("phi3") / "config.json").read_text())
    config["rope_parameters"]["short_factor"] = [1.0] * 4
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert [kind.is_rope_scaled for kind in inspect(tmp_path).architecture.kinds] == [True]
    assert not any(kind.is_rope_scaled for kind in inspect(checkpoint("llama2")).architecture.kinds)


def test_packed_weights_have_as_many_parameters_and_fewer_bytes():
    dense, packed = inspect("llama-3-8b"), inspect("llama-3-8b", quantization="int8")
    assert packed.num_params == dense.num_params
    assert [part.num_params for part in packed.parts] == [part.num_params for part in dense.parts]
    assert 0.5 < packed.loaded_bytes / dense.loaded_bytes < 0.502
    does_fit = [
        next(fit.does_fit for fit in found.fits if (fit.device, fit.num_devices) == ("TPU v5e", 1))
        for found in (dense, packed)
    ]
    assert does_fit == [False, True], "16 GB"


@pytest.mark.parametrize(
    ("family", "size"), [("llama2", 2), ("llama3", 1), ("llama3", 4), ("gemma3", 1), ("gemma3", 4)]
)
def test_each_devices_share_is_what_lies_on_it(family, size):
    llm = tiny_engine(family, tensor_parallel_size=size)
    parts, config = llm.parts, EngineConfig.create(str(checkpoint(family)))
    share = device_share(config, parts.model, parts.runner.settings.model.dtype, size, parts.sizes.page_size, "cpu")
    on_first = [leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(parts.runner.params)]
    assert share.weight_bytes == sum(on_first)
    pool = parts.runner._state.kv.pool
    assert share.page_bytes * pool.shape[1] == pool.addressable_shards[0].data.nbytes
    embed = 0 if parts.model.is_tied else parts.runner.params["embed"].addressable_shards[0].data.nbytes
    assert share.read_bytes == share.weight_bytes - embed


def test_windows_bound_what_a_sequence_keeps():
    kv = inspect("gemma-3-270m", max_model_len=32_768).kv
    local, glob = kv.groups
    assert (local.window, local.num_groups, local.layers_per_group, glob.window) == (512, 5, 3, None)
    growth = kv.sequence_bytes[32_768] - kv.sequence_bytes[8192]
    assert growth == (32_768 - 8192) * glob.bytes_per_token
    assert kv.sequence_bytes[8192] < 8192 * kv.bytes_per_token / 3


def test_the_type_and_the_context_are_as_asked():
    found = inspect("llama-3.1-8b", dtype="float32", max_model_len=10_000, page_size=16)
    assert found.kv.bytes_per_token == 262_144
    assert list(found.kv.sequence_bytes) == [1024, 8192, 10_000]
    assert {tuple(fit.sequences) for fit in found.fits} == {(4096,)}
    with pytest.raises(ConfigError, match="context of 131072"):
        inspect("llama-3.1-8b", max_model_len=131_073)


def test_every_number_of_devices_that_divides_the_model_is_tried():
    assert {fit.num_devices for fit in inspect("llama-3-8b").fits} == {1, 2, 4, 8, 16}
    assert {fit.num_devices for fit in inspect("smollm2-135m").fits} == {1, 3}
    assert {fit.num_devices for fit in inspect("llama-3-8b", num_devices=4).fits} == {4}
    with pytest.raises(ConfigError, match="tensor_parallel_size=3"):
        inspect("llama-3-8b", num_devices=3)


def test_a_70b_model_needs_as_many_devices_as_an_engine_would_take():
    """JAX takes 75 % of a GPU: 141 GB of weights fit on two of 80 GB only if that share is raised."""
    smallest = {}
    for fit in inspect("llama-3-70b").fits:
        if fit.does_fit:
            smallest.setdefault(fit.device, fit.num_devices)
    assert (smallest["H100 80GB"], smallest["B200"], smallest["TPU v6e"]) == (4, 2, 8)
    assert (smallest["A100 40GB"], smallest["L4"], smallest["TPU v5e"]) == (8, 16, 16)


def test_this_machine_comes_first_and_offers_what_an_engine_would_take():
    found = inspect_model(EngineConfig.create("smollm2-135m"), local_devices())
    first = found.fits[0]
    assert first.device.startswith("this ")
    assert first.num_devices == 1
    assert first.kv_bytes == 2**30
    more = inspect_model(EngineConfig.create("smollm2-135m", memory_utilization=0.9), local_devices()).fits[0]
    assert more.kv_bytes > 2**30


def test_real_weights_are_counted_where_they_lie(real_model):
    path = real_model("smollm2-135m-instruct").weights
    found = inspect(path)
    assert found.num_params == 134_515_008
    assert {part.name for part in found.parts} == {"embedding", "attention", "MLP", "norms"}
    with open_checkpoint(resolve(str(path))) as opened:
        assert found.stored_bytes == sum(info.nbytes for info in opened.tensors.values())
    assert next(iter(found.stored_types)) == "Q4_1"
    tokenizer = found.tokenizer
    assert tokenizer is not None
    assert (tokenizer.vocab_size, tokenizer.eos, tokenizer.has_chat_template) == (49_152, {2: "<|im_end|>"}, True)


def test_a_configuration_without_weights_is_enough(tmp_path):
    shutil.copy(checkpoint("gemma3") / "config.json", tmp_path)
    assert asdict(inspect(tmp_path).architecture) == asdict(inspect(checkpoint("gemma3")).architecture)
    assert inspect(tmp_path).stored_bytes is None


def test_of_a_hub_model_only_headers_are_fetched(monkeypatch):
    folder = checkpoint("llama3")
    with open_checkpoint(resolve(str(folder))) as opened:
        tensors = {name: TensorInfo(name, i.shape, i.dtype, i.nbytes) for name, i in opened.tensors.items()}
    monkeypatch.setattr(
        "checkpoints.open_header.fetch_header", lambda repo, *_: HubHeader(folder, tensors, pytest.fail)
    )
    monkeypatch.setattr(module, "_is_offline", lambda: False)
    found, local = inspect("org/name"), inspect(folder)
    assert (found.stored_bytes, found.parts) == (local.stored_bytes, local.parts)


SCHEMA = {
    "": "model dtype quantization max_model_len architecture parts num_params stored_bytes stored_types loaded_bytes "
    "kv tokenizer memory_utilization fits",
    "architecture": "family num_layers kinds d_model d_mlp num_heads num_kv_heads head_dim vocab_size max_position "
    "activation is_tied declared_dtype",
    "kinds": "name num_layers window rope_base is_rope_scaled",
    "parts": "name num_params stored_bytes loaded_bytes",
    "kv": "page_size bytes_per_token groups sequence_pages sequence_bytes",
    "groups": "kind window num_groups layers_per_group bytes_per_token",
    "fits": "device num_devices memory_bytes weight_bytes scratch_bytes kv_bytes num_pages kv_tokens max_model_len "
    "sequences step_floor_s",
}


def test_the_names_in_its_json_stay():
    record = json.loads(json.dumps(asdict(inspect("gemma-3-1b"))))
    records = {"": record, "architecture": record["architecture"], "kinds": record["architecture"]["kinds"][0]}
    records |= {"parts": record["parts"][0], "kv": record["kv"], "groups": record["kv"]["groups"][0]}
    records |= {"fits": record["fits"][0]}
    assert {name: " ".join(values) for name, values in records.items()} == SCHEMA
