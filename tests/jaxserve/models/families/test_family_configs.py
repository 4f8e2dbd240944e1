"""Windows, caps and context of each family's configuration, read from both formats and written back."""

import json
from dataclasses import replace
from functools import cache

import pytest

from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve.core.errors import ConfigError
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families import registry
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.runner.load_weights import read_config
from tests.support.gguf_checkpoints import write_gguf
from tests.support.golden_data import FAMILIES, checkpoint


@cache
def hf(family: str) -> dict:
    return json.loads((checkpoint(family) / "config.json").read_text())


@cache
def header(family: str, folder) -> tuple[dict, ModelConfig]:
    path = write_gguf(checkpoint(family), folder / f"{family}.gguf")
    with open_checkpoint(resolve(str(path))) as opened:
        return dict(opened.metadata), read_config(opened)


@pytest.fixture(scope="session")
def gguf_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gguf")


def windows(config: ModelConfig) -> list[int | None]:
    return [config.kinds[k].attention.window for k in config.layer_kinds]


@pytest.mark.parametrize("name", SHAPES)
def test_a_written_configuration_reads_as_the_same_model(name):
    config = replace(SHAPES[name], bos_id=1, eos_ids=(2, 7))
    written = json.loads(json.dumps(registry.to_hf(config)))
    assert registry.from_hf(written) == config


@pytest.mark.parametrize("family", FAMILIES)
def test_so_do_those_of_checkpoints_whatever_their_ropes(family, gguf_folder):
    config = registry.from_hf(hf(family))
    models = [config, config.for_context(32), config.for_context(256)]
    if family != "gemma3":
        models.append(header(family, gguf_folder)[1])
    for model in models:
        assert registry.from_hf(json.loads(json.dumps(registry.to_hf(model)))) == model


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("gemma3", "qwen2")])
def test_both_spellings_describe_one_model(family, gguf_folder):
    """Up to float32 rounding of a header's numbers."""
    ours, theirs = registry.from_hf(hf(family)), header(family, gguf_folder)[1]
    for a, b in zip(ours.kinds, theirs.kinds, strict=True):
        assert a.attention.window == b.attention.window
        for max_len in (32, 256):
            ropes = [kind.attention.rope.for_context(max_len) for kind in (a, b)]
            assert ropes[0].attention_factor == pytest.approx(ropes[1].attention_factor)
            assert ropes[0].frequencies(ours.head_dim) == pytest.approx(ropes[1].frequencies(ours.head_dim))
    assert replace(theirs, stacks=ours.stacks, dtype="float32", norm_eps=ours.norm_eps) == ours


def test_mistrals_window_is_that_of_the_first_release_where_none_is_stated():
    config = hf("mistral") | {"max_position_embeddings": 8192}
    assert windows(registry.from_hf({k: v for k, v in config.items() if k != "sliding_window"}))[0] == 4096
    assert windows(registry.from_hf(config | {"sliding_window": None}))[0] is None


def test_a_window_as_long_as_the_context_is_none():
    assert windows(registry.from_hf(hf("phi3") | {"sliding_window": 255}))[0] == 255
    assert windows(registry.from_hf(hf("phi3") | {"sliding_window": 256}))[0] is None


def test_qwens_windows_begin_at_max_window_layers_and_only_where_they_are_used():
    config = {k: v for k, v in hf("qwen2").items() if k != "layer_types"}
    assert windows(registry.from_hf(config)) == [None, None, 20, 20]
    assert windows(registry.from_hf(config | {"max_window_layers": 0})) == [20] * 4
    assert windows(registry.from_hf(config | {"use_sliding_window": False})) == [None] * 4
    with pytest.raises(ConfigError, match="no sliding_window"):
        registry.from_hf(hf("qwen2") | {"use_sliding_window": False})


def test_gemma_2_begins_with_a_window_and_its_caps_have_defaults():
    config = {k: v for k, v in hf("gemma2").items() if k not in ("layer_types", "attn_logit_softcapping")}
    model = registry.from_hf(config | {"final_logit_softcapping": None})
    assert windows(model) == [16, None, 16, None, 16]
    assert {kind.attention.softcap for kind in model.kinds} == {50.0}
    assert model.final_softcap is None


def test_gemma_2_27b_scales_queries_by_its_own_number(gguf_folder):
    metadata, _ = header("gemma2", gguf_folder)
    assert registry.from_gguf(metadata, is_tied=True).kinds[0].attention.scale == 8**-0.5
    largest = metadata | {"gemma2.block_count": 46, "gemma2.embedding_length": 4608, "gemma2.attention.head_count": 32}
    assert registry.from_gguf(largest, is_tied=True).kinds[0].attention.scale == 144**-0.5


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("qwen2", "qwen2.attention.sliding_window", 20),
        ("qwen3", "qwen3.expert_count", 8),
        ("phi3", "phi3.attention.scale", 0.5),
        ("gemma2", "gemma2.attention.sliding_window_pattern", 3),
        ("mistral", "llama.rope.dimension_count", 4),
    ],
)
def test_a_header_that_asks_for_more_than_is_built_is_refused_by_name(family, key, value, gguf_folder):
    metadata, _ = header(family, gguf_folder)
    with pytest.raises(ConfigError, match=key.split(".", 1)[1]):
        registry.from_gguf(metadata | {key: value}, is_tied=False)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("qwen2", {"dual_chunk_attention_config": {"chunk_size": 8}}),
        ("phi3", {"full_attn_mod": 2}),
        ("phi3", {"lm_head_bias": True}),
        ("phi3", {"sliding_window": "wide"}),
        ("gemma2", {"attn_logit_softcapping": -1}),
        ("gemma2", {"layer_types": ["chunked_attention"] * 5}),
        ("mistral", {"rms_norm_eps": "tiny"}),
    ],
)
def test_a_configuration_that_asks_for_more_than_is_built_is_refused_by_name(family, change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        registry.from_hf(hf(family) | change)
