"""An engine whose pages hold positions in lanes gives the tokens that transformers gives, in less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams, pure
from jaxserve.core.errors import ConfigError
from tests.support.golden_data import checkpoint, goldens
from tests.support.naive_loop import NaiveModel
from tests.support.tiny_engines import tiny_engine

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
LANES = {"kv_layout": "lanes", "num_pages": 40}


def generate(llm, prompts, params=GREEDY):
    return [out.outputs[0].token_ids for out in llm.generate(prompts, params, use_tqdm=False)]


def test_prompts_in_chunks_beside_decoding_rows():
    """In a family with two kinds of layers, one of them windowed."""
    llm = tiny_engine("gemma3", **LANES, max_chunk_tokens=7)
    assert llm.parts.limits.page_size == 128
    expected = goldens("gemma3")
    assert generate(llm, [golden.prompt for golden in expected]) == [golden.greedy for golden in expected]


def test_heads_divided_over_devices_and_samples_that_part_from_a_shared_page():
    params = SamplingParams(n=3, seed=5, max_tokens=24, ignore_eos=True)
    outputs = []
    for options in (LANES, {"num_pages": 40}):
        llm = tiny_engine("llama3", **options, tensor_parallel_size=2)
        out = llm.generate([goldens("llama3")[0].prompt], params, use_tqdm=False)[0]
        outputs.append([sample.token_ids for sample in out.outputs])
    assert outputs[0] == outputs[1]
    assert len({tuple(tokens) for tokens in outputs[0]}) == 3


def test_the_naive_loop_over_several_pages():
    """A text longer than a page, whose tokens come from a loop that keeps no keys and values."""
    path = checkpoint("llama3")
    prompt = [int(t) for t in np.random.default_rng(0).integers(3, 100, 120)]
    llm = tiny_engine("llama3", **LANES, max_model_len=160)
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    assert generate(llm, [prompt], params) == [NaiveModel.load(path).greedy(prompt, 30)]


def test_a_cache_of_the_pure_functions():
    model = pure.load(str(checkpoint("llama3")), dtype="float32", kv_layout="lanes")
    golden = goldens("llama3")[1]
    tokens, lengths = jnp.array([golden.prompt]), jnp.array([len(golden.prompt)])
    cache = pure.init_cache(model.settings, 1, 64)
    assert cache.pool.shape[4] == 128
    drawn = []
    logits, cache = pure.prefill(model.settings, model.params, tokens, lengths, cache)
    decode = jax.jit(pure.decode, static_argnums=0)
    for _ in range(8):
        drawn.append(int(logits[0].argmax()))
        logits, cache = decode(model.settings, model.params, jnp.array(drawn[-1:]), cache)
    assert drawn == golden.greedy[:8]


def test_lanes_pad_no_head_dim():
    """The tiny models' heads of 16 take 128 numbers a position in rows, and 32 in lanes."""
    in_lanes, in_rows = (
        tiny_engine("llama3", num_pages=40, page_size=128, kv_layout=name) for name in ("lanes", "rows")
    )
    size = [llm.parts.runner._state.pool.nbytes for llm in (in_lanes, in_rows)]
    head_dim = in_lanes.parts.model.head_dim
    assert size[0] * 128 == size[1] * 2 * head_dim


def test_a_page_size_that_lanes_cannot_have_is_refused_by_name():
    for page_size in (16, 64):
        with pytest.raises(ConfigError, match=f"kv_layout='lanes' needs .* multiple of 128, not {page_size}") as caught:
            LLM(str(checkpoint("llama3")), kv_layout="lanes", page_size=page_size)
        assert caught.value.param == "kv_layout"
