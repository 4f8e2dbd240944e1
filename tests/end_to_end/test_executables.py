"""One trace and one executable a bucket; nothing new after warm-up; one transfer each way a step."""

import jax
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.buckets import Bucket
from jaxserve.core.errors import EngineDeadError, FrozenBucketError
from tests.support.engines import SMALL
from tests.support.goldens import checkpoint, goldens

PROMPTS = [g.prompt for g in goldens("llama3")]


@pytest.fixture(scope="module")
def llm():
    return LLM(str(checkpoint("llama3")), **SMALL)


def test_everything_is_compiled_once_and_the_pool_is_never_copied(llm):
    llm.warm_up()
    features = [
        SamplingParams(max_tokens=9, logprobs=2),
        SamplingParams(max_tokens=7, n=2, presence_penalty=1.0, logit_bias={4: 1.0}),
        SamplingParams(max_tokens=5, top_p=0.9, top_k=50, prompt_logprobs=1, allowed_token_ids=[1, 2, 3]),
    ]
    llm.generate(PROMPTS, features, use_tqdm=False)
    runner = llm._built.runner
    assert set(runner.traces.values()) == {1}
    assert runner.traces.keys() == {str(b) for b in llm._built.buckets.all()} | {"fork", "set_edits", "set_mask"}
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(runner._state))
    for name, executable in runner.executables.items():
        memory = executable.memory_analysis()
        assert memory.alias_size_in_bytes == state_bytes, name
        assert memory.temp_size_in_bytes < runner._state.pool.nbytes / 2, name


def test_the_host_reads_once_a_step(llm):
    engine, runner = llm._built.engine, llm._built.runner
    reads, steps = runner.num_reads, 0
    engine.add(llm._built.requests.make(PROMPTS[1], SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)))
    while engine.has_work:
        engine.step()
        steps += 1
    assert runner.num_reads - reads <= steps


def test_a_new_shape_after_warm_up_is_an_error_that_names_it(llm):
    with pytest.raises(FrozenBucketError, match=r"mixed\[tokens=64, rows=8, page_columns=8\]"):
        llm._built.runner._step(Bucket(64, 8, 8))


def test_a_runner_that_fails_ends_the_engine_and_says_so():
    llm = LLM(str(checkpoint("llama3")), **SMALL)
    llm._built.runner.freeze()
    with pytest.raises(EngineDeadError, match="was not compiled"):
        llm.generate([PROMPTS[0]], use_tqdm=False)
    with pytest.raises(EngineDeadError, match="build a new engine"):
        llm.generate([PROMPTS[0]], use_tqdm=False)
