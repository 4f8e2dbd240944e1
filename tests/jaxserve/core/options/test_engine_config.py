"""Engine options: each is accepted or refused by name, also by vLLM's name for it."""

import dataclasses

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import ALIASES, NEUTRAL, EngineConfig

REFUSED = {
    "model": "",
    "load_format": "pt",
    "dtype": "int8",
    "seed": 2**63,
    "tensor_parallel_size": 0,
    "enable_lora": 1,
    "max_loras": 0,
    "max_lora_rank": 257,
    "max_cpu_loras": 7,  # fewer than max_loras
    "max_model_len": -1,
    "max_num_seqs": 2.5,
    "max_num_batched_tokens": True,
    "max_chunk_tokens": "9",
    "page_size": 24,
    "kv_layout": "columns",
    "num_pages": 1,
    "kv_cache_memory_bytes": 0,
    "memory_utilization": float("nan"),
    "max_logprobs": -2,
    "attention_backend": "magic",
    "quantization": "int3",
    "batch_invariant": 1,
    "scheduling_policy": "lifo",
    "priority_ageing_s": 60.0,
    "tenant_weights": {"a": 1.0},
    "speculative_config": {"method": "ngram"},
    "kv_policy": {"name": "streaming"},
    "max_num_waiting": -1,
    "max_waiting_tokens": 0,
    "tokenizer": 5,
    "skip_tokenizer_init": "no",
    "chat_template": 5,
    "revision": 5,
    "hf_token": 5,
    "cache_dir": 5,
    "compilation_cache_dir": 5,
    "compiled": 5,
    "keep_lowered": 1,
    "buckets": [8, 16],
    "max_decode_rounds": 17,
    "async_scheduling": "no",
    "escape_special_tokens": "yes",
    "enable_prefix_caching": 1,
    "host_kv_cache_bytes": -1,
    "prefix_eviction": "mru",
}


def test_every_option_refuses_a_bad_value_by_name():
    assert REFUSED.keys() == {f.name for f in dataclasses.fields(EngineConfig)}
    for name, value in REFUSED.items():
        with pytest.raises(ConfigError, match=name) as caught:
            EngineConfig.create(**({"model": "m"} | {name: value}))
        assert caught.value.param == name


@pytest.mark.parametrize("alias", ALIASES)
def test_names_of_vllm_are_accepted(alias):
    value = {"block_size": 32, "gpu_memory_utilization": 0.5, "download_dir": "x"}.get(alias, 64)
    assert getattr(EngineConfig.create("m", **{alias: value}), ALIASES[alias]) == value
    with pytest.raises(ConfigError, match="same option"):
        EngineConfig.create("m", **{alias: value, ALIASES[alias]: value})


@pytest.mark.parametrize("name", NEUTRAL)
def test_unsupported_options_are_accepted_only_with_their_neutral_value(name):
    EngineConfig.create("m", **{name: NEUTRAL[name]})
    with pytest.raises(ConfigError, match=name):
        EngineConfig.create("m", **{name: "something else"})


def test_quantizations_of_vllm_are_those_of_files():
    assert EngineConfig.create("m", quantization=None).quantization == "auto"
    for name in ("gptq", "awq", "bitsandbytes", "compressed-tensors"):
        with pytest.raises(ConfigError, match="read with 'auto', and with 'packed'") as caught:
            EngineConfig.create("m", quantization=name)
        assert caught.value.param == "quantization"


def test_two_sizes_of_the_pool_contradict():
    with pytest.raises(ConfigError, match="num_pages and memory_utilization"):
        EngineConfig.create("m", num_pages=5, memory_utilization=0.5)


def test_a_token_is_not_shown():
    assert "secret" not in repr(EngineConfig.create("m", hf_token="secret"))


def test_a_misspelled_option_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean max_num_seqs"):
        EngineConfig.create("m", max_num_seq=4)
