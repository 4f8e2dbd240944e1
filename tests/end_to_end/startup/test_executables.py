"""One trace and one executable per bucket; nothing new after warm-up; the state updated in place; one read per step."""

import jax
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.buckets import MAX_ROUNDS, Bucket
from jaxserve.core.errors import EngineDeadError, FrozenBucketError
from jaxserve.engine.tasks.embed import embed
from jaxserve.engine.tasks.score import score
from tests.support.golden_data import checkpoint, goldens
from tests.support.random_load import Compilations, RandomLoad
from tests.support.tiny_engines import SIZES, SMALL, drain, submit

OTHERS = {"draw[rows=8]", "draw[rows=12]", "fork", "set_edits", "set_masks[rows=8]", "set_masks[rows=12]", "set_counts"}
OPTIONS = SIZES | {"max_num_seqs": 12, "max_num_batched_tokens": 40, "buckets": "8 12 40x12"}


@pytest.fixture(scope="module")
def llm():
    llm = LLM(str(checkpoint("gemma3")), **OPTIONS)  # everything that llama3 has, and windows
    llm.warm_up(use_tqdm=False)
    return llm


def num_pages_unused(llm):
    return llm.stats.num_pages_free + llm.stats.num_pages_cached


def test_a_random_load_after_warm_up_compiles_nothing(llm):
    """250 steps; `scripts/prove frozen` runs 10,000 of a real model."""
    traces, executables = llm.parts.runner.programs.traces, llm.parts.runner.executables
    buckets = {str(b) for b in llm.parts.spec.buckets.all()}
    assert len(buckets) == 3
    load = RandomLoad(llm, max_prompt_len=90, max_output_len=38)
    with Compilations() as heard:
        jax.jit(lambda x: x * 3 + 1)(np.arange(7))
        assert heard.count == 1, "control: a compilation is heard"
        load.run(250)
        prompts = [np.random.default_rng(i).integers(3, 320, 10 + 2 * i).tolist() for i in range(30)]
        score(llm.output_processor, llm.parts.input_processor, [(p[:40], p[-3:]) for p in prompts])
        embed(llm.output_processor, llm.parts.input_processor, prompts)
    assert heard.count == 1
    assert set(traces.values()) == {1}
    assert traces.keys() == executables.keys() == buckets | OTHERS
    assert load.buckets.keys() == buckets
    assert min(load.num_aborted, load.num_rounds - load.num_steps) > 5
    assert llm.stats.num_cached_tokens > 100
    assert num_pages_unused(llm) == OPTIONS["num_pages"] - 1


def test_every_executable_updates_the_whole_state_in_place(llm):
    runner = llm.parts.runner
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(runner._state))
    for name, executable in runner.executables.items():
        memory = executable.memory_analysis()
        assert memory.alias_size_in_bytes == state_bytes, name
        assert memory.temp_size_in_bytes < runner._state.kv.pool.nbytes / 2, name


def test_a_program_that_keeps_the_old_pool_is_noticed(llm):
    """Control: without donation nothing is aliased, and the pool exists twice."""
    pool = llm.parts.runner._state.kv.pool
    copied = jax.jit(lambda pool: pool.at[0, 0].set(0.0)).lower(pool).compile().memory_analysis()
    assert copied.alias_size_in_bytes == 0


def test_every_step_is_read_once(llm):
    runner = llm.parts.runner
    reads, submitted = runner.num_reads, []
    original = runner.submit
    runner.submit = lambda plan: submitted.append(plan) or original(plan)
    submit(llm, goldens("gemma3")[1].prompt, SamplingParams(max_tokens=60, temperature=0, ignore_eos=True))
    drain(llm)
    runner.submit = original
    assert len(submitted) >= 60 / MAX_ROUNDS
    assert runner.num_reads - reads == len(submitted)


def test_a_new_shape_after_warm_up_is_an_error_that_names_it(llm):
    new = llm.parts.runner.programs.step(Bucket(64, 8, 8))
    with pytest.raises(FrozenBucketError, match=r"mixed\[tokens=64, rows=8, page_columns=8\]"):
        llm.parts.runner._executables.get(new.name, lambda: new)


def test_a_runner_that_fails_ends_the_engine_and_says_so():
    llm = LLM(str(checkpoint("llama3")), **SMALL)
    llm.parts.runner.freeze()
    prompt = goldens("llama3")[0].prompt
    with pytest.raises(EngineDeadError, match="was not compiled"):
        llm.generate([prompt], use_tqdm=False)
    with pytest.raises(EngineDeadError, match="build a new engine"):
        llm.generate([prompt], use_tqdm=False)


def test_an_interrupt_leaves_the_engine_usable(llm):
    """Ctrl-C while a step is submitted, and while one is collected: nothing is lost but the interrupted call."""
    golden = goldens("gemma3")[1]
    runner, params = llm.parts.runner, SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    assert params.max_tokens > 3 * MAX_ROUNDS  # so that there is a third step

    for name in ("submit", "collect"):
        original, calls = getattr(runner, name), []

        def interrupted(argument, original=original, calls=calls):
            calls.append(argument)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return original(argument)

        setattr(runner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate([golden.prompt], params, use_tqdm=False)
        setattr(runner, name, original)
        (out,) = llm.generate([golden.prompt], params, use_tqdm=False)
        assert out.outputs[0].token_ids[: len(golden.greedy)] == golden.greedy
        assert num_pages_unused(llm) == OPTIONS["num_pages"] - 1
