"""Bad input raises a ValueError of one sentence that names the fault, and affects no other request."""

import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, drain, driven, submit, tiny_engine

GOLDEN = goldens("llama3")[1]

PROMPTS = {
    "empty text needs a tokenizer": ("", "no tokenizer"),
    "no tokens": ({"prompt_token_ids": []}, "empty"),
    "too long": ([5] * 128, "maximum context length is 128 tokens"),
    "outside the vocabulary": ([5, 320], "outside the vocabulary"),
    "negative": ([5, -1], "outside the vocabulary"),
    "fractions": ({"prompt_token_ids": [1.5]}, "integers"),
    "truth values": ({"prompt_token_ids": [True]}, "integers"),
    "unknown key": ({"prompt_token_ids": [5], "multi_modal_data": 1}, "multi_modal_data"),
    "nothing": ({}, "neither"),
    "a number": (5, "not int"),
    "matrix": (np.ones((2, 2), np.int32), "ndarray"),
}

PARAMS = {
    "logprobs": {"logprobs": 21},
    "prompt_logprobs": {"prompt_logprobs": -1},
    "stop_token_ids": {"stop_token_ids": [320]},
    "logit_bias": {"logit_bias": {400: 1.0}},
    "allowed_token_ids": {"allowed_token_ids": [320]},
    "stop": {"stop": ["x"]},
    "bad_words": {"bad_words": ["x"]},
    "min_tokens": {"min_tokens": 120, "max_tokens": 125},
}

OPTIONS = {
    "max_model_len": 4096,
    "num_pages": 3,
    "tensor_parallel_size": 3,
    "max_num_batched_tokens": 4,
    "page_size": 12,
    "memory_utilization": 1.5,
    "dtype": "float16",
    "load_format": "gguf",
    "enable_prefix_caching": "yes",
    "prefix_eviction": "mru",
    "host_kv_cache_bytes": 100,
    "quantization": "awq",
    "block_sise": 16,
    "tokenizer": "/nowhere",
    "max_num_seqs": 0,
    "scheduling_policy": "lifo",
    "tenant_weights": {"a": -1.0},
    "max_waiting_tokens": 4,
}


@pytest.mark.parametrize("name", PROMPTS)
def test_a_bad_prompt_is_refused_before_anything_runs(name):
    prompt, message = PROMPTS[name]
    llm = tiny_engine("llama3")
    with pytest.raises(ValueError, match=message):
        llm.generate([GOLDEN.prompt, prompt], use_tqdm=False)
    assert not llm.parts.engine.has_work
    out = llm.generate([GOLDEN.prompt], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), use_tqdm=False)
    assert out[0].outputs[0].token_ids == GOLDEN.greedy[:4]


@pytest.mark.parametrize("name", PARAMS)
def test_parameters_that_the_model_cannot_honor_are_named(name):
    with pytest.raises(ValueError, match=name) as caught:
        tiny_engine("llama3").generate([GOLDEN.prompt], SamplingParams(**PARAMS[name]), use_tqdm=False)
    assert caught.value.param == name


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_cannot_be_honored_are_named(name):
    with pytest.raises(ValueError, match=name):
        LLM(str(checkpoint("llama3")), **(SMALL | {name: OPTIONS[name]}))


def test_unequal_numbers_of_prompts_and_parameters():
    with pytest.raises(ValueError, match="2 prompts but 3 sampling_params"):
        tiny_engine("llama3").generate([[5], [6]], [SamplingParams()] * 3, use_tqdm=False)


@pytest.mark.parametrize("model", ["no-such-model", "/nowhere/at/all", "llama-3-8b"])
def test_an_unknown_model_says_what_to_do(model):
    with pytest.raises(ValueError, match=r"path|folder|short name"):
        LLM(model)


def test_a_file_that_is_no_model(tmp_path):
    for name in ("model.gguf", "model.safetensors"):
        path = tmp_path / name
        path.write_bytes(b"not a model at all, but long enough to have a header" * 4)
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(ValueError, match=name):
            LLM(str(path))


def test_unknown_architectures_and_keys_are_refused_by_name(tmp_path):
    import json
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(checkpoint("llama3"), folder)
    config = json.loads((folder / "config.json").read_text())
    for change, message in (({"model_type": "mamba"}, "mamba"), ({"sliding_windows": 4}, "sliding_windows")):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message):
            LLM(str(folder), **SMALL)


def test_an_abort_in_mid_flight_leaves_the_engine_usable():
    llm = tiny_engine("llama3")
    engine = llm.parts.engine
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    sequences = [submit(llm, g.prompt, params) for g in goldens("llama3")]
    with driven(llm, 1, is_overlapped=True):
        for _ in range(4):
            engine.step()
    engine.scheduler.abort(sequences[2].request.request_id)
    engine.scheduler.abort(sequences[2].request.request_id)
    drain(llm)
    assert sequences[2].finish_reason == "abort"
    assert [s.token_ids for s in sequences[:2]] == [g.greedy for g in goldens("llama3")[:2]]
    assert llm.stats.num_pages_free == SMALL["num_pages"] - 1
