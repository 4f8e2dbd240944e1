"""bfloat16 and automatic types through the engine; random weights from a configuration alone."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.errors import ConfigError
from jaxserve.engine.build.model_source import choose_dtype
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, tiny_engine

ONE = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)


def prompt_logprobs(llm, prompt):
    (out,) = llm.generate([prompt], ONE, use_tqdm=False)
    return np.array([e[t].logprob for t, e in zip(prompt[1:], out.prompt_logprobs[1:], strict=True)])


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_bfloat16_stays_near_float32(family):
    golden = goldens(family)[2]
    exact, rounded = (prompt_logprobs(tiny_engine(family, dtype=d), golden.prompt) for d in ("float32", "bfloat16"))
    difference = np.abs(exact - rounded)
    assert 0 < difference.mean() < 0.05
    assert difference.max() < 0.4


def test_auto_is_what_the_checkpoint_declares_or_bfloat16():
    assert tiny_engine("llama3", dtype="auto").parts.runner.settings.model.dtype == jnp.float32
    assert choose_dtype("auto", "float16") == choose_dtype("auto", None) == jnp.bfloat16
    assert choose_dtype("float32", "bfloat16") == jnp.float32


@pytest.mark.thorough
def test_dummy_weights_from_a_folder_with_nothing_but_a_configuration(tmp_path):
    shutil.copy(checkpoint("gemma3") / "config.json", tmp_path)
    options = SMALL | {"load_format": "dummy"}
    same, again, other = (LLM(str(tmp_path), **options, seed=seed) for seed in (1, 1, 2**40 + 1))
    weights, *more = (jax.tree.map(np.asarray, llm.parts.runner.params) for llm in (same, again, other))
    equal_again, equal_other = (jax.tree.map(np.array_equal, weights, those) for those in more)
    assert all(jax.tree.leaves(equal_again))
    assert not equal_other["embed"]
    assert np.isfinite(prompt_logprobs(same, goldens("gemma3")[2].prompt)).all()


@pytest.mark.optimized  # 135 million draws
def test_dummy_weights_of_a_named_shape():
    llm = LLM("smollm2-135m", **(SMALL | {"load_format": "dummy", "dtype": "bfloat16"}))
    assert llm.parts.model.num_layers == 30
    embed = llm.parts.runner.params["embed"]
    assert (embed.shape, embed.dtype) == ((49152, 576), jnp.bfloat16)
    jax.block_until_ready(llm.parts.runner.params)


def test_dummy_weights_refuse_what_means_nothing(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    for model, options, message in (
        ("smollm2-135m", {"revision": "main"}, "revision"),
        ("smollm2-136m", {}, "shapes: "),
        (str(tmp_path), {}, "hidden_size"),
    ):
        with pytest.raises(ConfigError, match=message):
            LLM(model, load_format="dummy", **options)
