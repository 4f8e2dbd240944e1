"""Weights that were changed in a running engine are saved to a folder, and Orbax folders load like all others."""

import jax
import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from jaxserve import LLM, SamplingParams
from jaxserve.cli.convert import run
from jaxserve.core.errors import ConfigError
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL

GREEDY = SamplingParams(temperature=0, max_tokens=8, logprobs=1)


def text_of(llm):
    (out,) = llm.generate([goldens("llama3")[1].prompt], GREEDY, use_tqdm=False)
    steps = [next(iter(entry.values())).logprob for entry in out.outputs[0].logprobs]
    return out.outputs[0].token_ids, steps


@pytest.mark.thorough
def test_changed_weights_are_saved_from_one_mesh_and_loaded_on_another(tmp_path):
    llm = LLM(str(checkpoint("llama3")), **SMALL, tensor_parallel_size=4)
    original = text_of(llm)
    llm.update_weights(jax.tree.map(lambda leaf: leaf * leaf.dtype.type(1.25), llm.parts.runner.params))
    changed = text_of(llm)
    assert changed[1] != original[1]
    llm.save(tmp_path / "tuned")
    loaded = LLM(str(tmp_path / "tuned"), **SMALL, load_format="orbax")
    assert loaded.parts.model == llm.parts.model
    again = text_of(loaded)
    assert again[0] == changed[0]
    np.testing.assert_allclose(again[1], changed[1], rtol=1e-4, atol=1e-5)  # sums over four devices round differently
    with pytest.raises(CheckpointError, match="is not empty"):
        llm.save(tmp_path / "tuned")


def test_what_the_context_settled_is_saved_open(tmp_path):
    llm = LLM(str(checkpoint("phi3")), **SMALL)
    assert llm.parts.model != llm.parts.described  # one of LongRoPE's two tables was chosen
    llm.save(tmp_path / "saved")
    assert LLM(str(tmp_path / "saved"), **SMALL).parts.described == llm.parts.described


def test_an_engine_on_an_orbax_folder_gives_the_same_tokens(tmp_path):
    run([str(checkpoint("llama3")), str(tmp_path / "out"), "--quiet", "--format", "orbax"])
    golden = goldens("llama3")[1]
    llm = LLM(str(tmp_path / "out"), **SMALL)
    (out,) = llm.generate([golden.prompt], SamplingParams(temperature=0, max_tokens=24), use_tqdm=False)
    assert out.outputs[0].token_ids == golden.greedy


def test_another_load_format_than_the_folder_has_is_refused(tmp_path):
    run([str(checkpoint("llama3")), str(tmp_path / "out"), "--quiet", "--format", "orbax"])
    with pytest.raises(ConfigError, match="load_format='gguf' but the weights are orbax"):
        LLM(str(tmp_path / "out"), **SMALL, load_format="gguf")
    with pytest.raises(ConfigError, match="load_format='orbax' but the weights are safetensors"):
        LLM(str(checkpoint("llama3")), **SMALL, load_format="orbax")
