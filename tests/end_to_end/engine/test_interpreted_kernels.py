"""The engine with TPU kernels, interpreted on a CPU, generates the tokens of transformers."""

import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.errors import ConfigError
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import tiny_engine

# Prompts in chunks of 16 among decoding rows, in a family with a window that its prompts exceed. Each kind of layers
# takes some seconds to compile as a CPU program, so a family with one kind represents all.
OPTIONS = {"attention_backend": "mosaic_tpu", "page_size": 16, "max_chunk_tokens": 16}


def test_prompts_in_chunks_and_decoding_rows():
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    expected = goldens("mistral")
    prompts = [golden.prompt for golden in expected]
    assert max(map(len, prompts)) > OPTIONS["max_chunk_tokens"]
    llm = tiny_engine("mistral", **OPTIONS)
    assert max(map(len, prompts)) > min(kind.attention.window or 2**31 for kind in llm.parts.model.kinds)
    out = llm.generate(prompts, params, use_tqdm=False)
    assert [o.outputs[0].token_ids for o in out] == [golden.greedy[:6] for golden in expected]


def test_a_back_end_that_cannot_serve_is_refused_before_anything_is_loaded():
    options = {"attention_backend": "mosaic_tpu", "page_size": 4, "max_model_len": 64, "num_pages": 60}
    refused = r"attention_backend='mosaic_tpu' cannot serve .* mosaic_tpu: .*page"
    with pytest.raises(ConfigError, match=refused) as caught:
        LLM(str(checkpoint("llama3")), **options)
    assert caught.value.param == "attention_backend"
