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
from tests.support.tiny_engines import SMALL, drain, submit

OPTIONS = SMALL | {"max_num_seqs": 12, "max_num_batched_tokens": 40, "buckets": "8 12 40x12"}
FEATURES = [
    {"logprobs": 2},
    {"n": 3, "presence_penalty": 1.0, "logit_bias": {4: 1.0}},
    {"top_p": 0.9, "top_k": 50, "prompt_logprobs": 1, "allowed_token_ids": [1, 2, 3]},
    {"temperature": 0, "stop_token_ids": [7], "min_tokens": 2},
    {"min_p": 0.1, "repetition_penalty": 1.2},
]


@pytest.fixture(scope="module")
def llm():
    llm = LLM(str(checkpoint("gemma3")), **OPTIONS)  # everything that llama3 has, and windows
    llm.warm_up(use_tqdm=False)
    return llm


def test_a_random_load_after_warm_up_compiles_nothing(llm):
    runner = llm.parts.runner
    expected = {str(b) for b in llm.parts.spec.buckets.all()} | {"fork", "set_edits", "set_mask", "set_counts"}
    assert len(llm.parts.spec.buckets.all()) == 3
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    jax.jit(lambda x: x * 3 + 1)(np.arange(7))  # control: the listener sees a compilation
    assert compiled
    compiled.clear()
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 320, rng.integers(1, 90)).tolist() for _ in range(30)]
    params = [SamplingParams(max_tokens=int(rng.integers(3, 12)), **FEATURES[i % 5]) for i in range(30)]
    llm.generate(prompts, params, use_tqdm=False)
    score(llm.output_processor, llm.parts.input_processor, [(p[:40], p[-3:]) for p in prompts])
    embed(llm.output_processor, llm.parts.input_processor, prompts)
    assert not compiled
    assert set(runner.programs.traces.values()) == {1}
    assert runner.programs.traces.keys() == runner.executables.keys() == expected


def test_every_executable_updates_the_whole_state_in_place(llm):
    runner = llm.parts.runner
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(runner._state))
    for name, executable in runner.executables.items():
        memory = executable.memory_analysis()
        assert memory.alias_size_in_bytes == state_bytes, name
        assert memory.temp_size_in_bytes < runner._state.pool.nbytes / 2, name


def test_a_program_that_keeps_the_old_pool_is_noticed(llm):
    """Control: without donation nothing is aliased, and the pool exists twice."""
    pool = llm.parts.runner._state.pool
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
        assert llm.stats.num_pages_free == OPTIONS["num_pages"] - 1
