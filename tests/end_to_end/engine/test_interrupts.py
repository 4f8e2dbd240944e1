"""Interrupts reach the caller, and the engine goes on: after each dispatch, and at two hundred random moments."""

import random
import signal
from itertools import count

import numpy as np
import pytest

from jaxserve import BeamSearchParams, SamplingParams
from tests.support.golden_data import goldens
from tests.support.signal_handlers import handlers
from tests.support.tiny_engines import drain, tiny_engine

PROMPTS = [golden.prompt for golden in goldens("llama3")]
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
EXPECTED = [golden.greedy[:8] for golden in goldens("llama3")]


class Interrupt(BaseException):
    """As KeyboardInterrupt, which would end pytest if it came between two tests."""


def interrupt(signum, frame):
    raise Interrupt


@pytest.fixture(autouse=True)
def _handlers():
    with handlers(interrupt, signal.SIGUSR1, signal.SIGVTALRM):
        yield


@pytest.fixture
def llm():
    return tiny_engine("llama3", prefix_eviction="lru", num_pages=40, max_num_seqs=4)


def check_whole(llm):
    """The engine gives the right tokens, and no page is lost."""
    outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs] == EXPECTED
    drain(llm)
    pool = llm.parts.engine.scheduler.state.pool
    assert (pool.num_referenced, pool.num_free + pool.num_cached) == (0, pool.num_pages - 1)


# Forks, biases, masks and penalties: each needs a program of its own.
MIXED = [
    GREEDY,
    SamplingParams(temperature=0.8, seed=3, max_tokens=6, n=3, frequency_penalty=0.5),
    SamplingParams(temperature=0, max_tokens=6, logit_bias={5: 2.0}, allowed_token_ids=list(range(100))),
]


def test_an_interrupt_after_any_dispatch_leaves_the_engine_usable(llm, monkeypatch):
    executables = llm.parts.runner._executables
    get, dispatched, interrupted = executables.get, [], [-1]

    def get_and_interrupt(name, make):
        execute = get(name, make)

        def run(*args):
            result = execute(*args)
            dispatched.append(name)
            if len(dispatched) - 1 in interrupted:
                signal.raise_signal(signal.SIGUSR1)
            return result

        return run

    def run():
        dispatched.clear()
        llm.reset_prefix_cache()
        return [o.outputs for o in llm.generate(PROMPTS[:3], MIXED, use_tqdm=False)]

    monkeypatch.setattr(executables, "get", get_and_interrupt)
    expected = run()
    assert {"fork", "set_edits", "set_masks[rows=8]"} < set(dispatched)
    for i in count():  # steps of several rounds make the number of dispatches depend on time
        interrupted[:] = [i]
        try:
            run()
        except Interrupt:
            continue
        assert len(dispatched) <= i
        break
    assert i > 8
    interrupted.clear()
    assert run() == expected
    check_whole(llm)


def test_two_hundred_interrupts_at_random_moments(llm):
    calls = [
        lambda: llm.generate(PROMPTS, MIXED[1], use_tqdm=False),
        lambda: llm.score([(PROMPTS[0], [1, 2, 3]), (PROMPTS[1], [4, 5])], use_tqdm=False),
        lambda: llm.embed(PROMPTS[:3], use_tqdm=False),
        lambda: llm.beam_search(PROMPTS[:2], BeamSearchParams(beam_width=2, max_tokens=4), use_tqdm=False),
        lambda: list(llm.stream(PROMPTS[2], GREEDY)),
    ]
    for call in calls:
        call()
    rng, num_interrupts = random.Random(0), 0
    while num_interrupts < 200:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, rng.uniform(1e-4, 2e-2))  # pytest-timeout has the real one
            rng.choice(calls)()
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except Interrupt:
            num_interrupts += 1
    check_whole(llm)
    assert np.isfinite(llm.embed(PROMPTS[:1], use_tqdm=False)[0].outputs.embedding).all()
