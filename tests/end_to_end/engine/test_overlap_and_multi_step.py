"""Overlapped scheduling and multi-step decoding change no token, text, log-probability or finish reason."""

import itertools

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.buckets import MAX_ROUNDS
from jaxserve.runner.programs.data_loops import data_loops
from jaxserve.runner.programs.hlo import read_hlo
from tests.support.golden_data import goldens
from tests.support.tiny_engines import SMALL, drain, driven, submit, tiny_engine

# Pairwise coverage of the options of requests, row by row, over two requests that overlap.
FEATURES = {
    "temperature": (0.0, 1.0),
    "logprobs": (None, 2),
    "presence_penalty": (0.0, 1.5),
    "n": (1, 3),
    "min_tokens": (0, 6),
    "stop_token_ids": (None, list(range(0, 320, 9))),
    "logit_bias": (None, {11: 2.0}),
    "prompt_logprobs": (None, 1),
}


def pairwise(features):
    """Settings that contain every pair of values of every two features."""
    rng, names = np.random.default_rng(0), list(features)
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i, j in itertools.product(range(len(features[a])), range(len(features[b])))
    }
    rows = []
    while missing:
        tried = [{n: int(rng.integers(len(features[n]))) for n in names} for _ in range(50)]
        met = [{p for p in missing if all(row[n] == i for n, i in p)} for row in tried]
        best = max(range(50), key=lambda k: len(met[k]))
        missing -= met[best]
        row = {n: features[n][i] for n, i in tried[best].items()}
        rows.append(row | ({} if row["temperature"] else {"n": 1}))  # greedy samples would all be equal
    return rows


ROWS = pairwise(FEATURES)


def run(llm, prompts, params, num_rounds, is_overlapped):
    """The outputs of every sample, their log-probabilities, and the decode rounds of each step."""
    with driven(llm, num_rounds, is_overlapped) as rounds:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    return [_summary(out) for out in outputs], [value for out in outputs for value in _logprobs(out)], rounds


def loops_of_decode_steps(llm):
    """How many loops that end by data the compiled decode steps have."""
    compiled = llm.parts.runner.executables
    return {len(data_loops(read_hlo(compiled[key].as_text()))) for key in compiled if str(key).startswith("decode")}


def _summary(out):
    samples = [(s.text, s.token_ids, s.finish_reason, s.stop_reason, _ranks(s.logprobs)) for s in out.outputs]
    return samples, _ranks(out.prompt_logprobs)


def _ranks(entries):
    return entries and [entry and {i: p.rank for i, p in entry.items()} for entry in entries]


def _logprobs(out):
    entries = [*(out.prompt_logprobs or []), *(entry for s in out.outputs for entry in s.logprobs or [])]
    return [p.logprob for entry in entries if entry for p in entry.values()]


@pytest.mark.thinned(1)
@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_every_pair_of_features_gives_the_same(family):
    """Also without a loop over rounds, which `max_decode_rounds=1` leaves out."""
    llm, without_loop = tiny_engine(family), tiny_engine(family, max_decode_rounds=1)
    prompts = [goldens(family)[i % 3].prompt[: 5 + i] for i in range(len(ROWS))]
    params = [SamplingParams(max_tokens=9 + 5 * (i % 4), seed=i, **row) for i, row in enumerate(ROWS)]
    expected, logprobs, rounds = run(llm, prompts, params, 1, is_overlapped=False)
    assert len(logprobs) > 200
    assert set(rounds) == {1}
    assert {sample[2] for samples, _ in expected for sample in samples} == {"stop", "length"}
    for engine, num_rounds, is_overlapped in (
        (llm, 1, True),
        (llm, 5, False),
        (llm, MAX_ROUNDS, True),
        (without_loop, 1, True),
    ):
        outputs, found, rounds = run(engine, prompts, params, num_rounds, is_overlapped)
        assert outputs == expected, (engine.config.max_decode_rounds, num_rounds, is_overlapped)
        np.testing.assert_allclose(found, logprobs, atol=1e-5)  # buckets of other sizes round differently
        assert max(rounds) == num_rounds
    assert {number - 1 for number in loops_of_decode_steps(llm)} == loops_of_decode_steps(without_loop)


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_a_row_that_must_see_its_tokens_draws_one_a_step_while_others_draw_several(is_overlapped):
    llm, golden = tiny_engine("llama3"), goldens("llama3")[0]
    words = (tuple(golden.greedy[3:5]),)
    with driven(llm, 1, is_overlapped=False):
        (careful,) = _drained(llm, (golden.prompt, 8, {"bad_words": words}))
    assert careful[:5] != golden.greedy[:5]
    with driven(llm, 8, is_overlapped) as rounds:
        outputs = _drained(llm, (golden.prompt, 8, {"bad_words": words}), (golden.prompt, 24, {}))
    assert outputs == [careful, golden.greedy]
    assert rounds[1:4] == [8, 8, 7], "three steps for the other row's 23 tokens after the first"


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_an_abort_in_the_middle_of_many_rounds_harms_nobody(is_overlapped):
    llm, golden = tiny_engine("gemma3"), goldens("gemma3")[1]
    engine = llm.parts.engine
    with driven(llm, 5, is_overlapped):
        sequences = [submit(llm, golden.prompt, _greedy(24)) for _ in range(2)]
        for _ in range(3):
            engine.step()
        engine.scheduler.abort(sequences[0].request.request_id)
        drain(llm)
    assert sequences[0].finish_reason == "abort"
    assert sequences[0].token_ids == golden.greedy[: len(sequences[0].token_ids)]
    assert sequences[1].token_ids == golden.greedy
    assert llm.stats.num_pages_free == SMALL["num_pages"] - 1


def test_rows_that_ended_on_the_device_end_the_step():
    """Control: without that stop token the step runs all of its rounds."""
    llm, golden = tiny_engine("llama3"), goldens("llama3")[0]
    place = next(i for i in range(3, 12) if golden.greedy[i] not in golden.greedy[:i])
    seen = []
    llm.parts.engine.observer = seen.append
    for stop_token_ids in ([golden.greedy[place]], None):
        with driven(llm, MAX_ROUNDS, is_overlapped=False):
            params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, stop_token_ids=stop_token_ids)
            llm.generate([golden.prompt], params, use_tqdm=False)
    llm.parts.engine.observer = None
    rounds = [record.num_rounds for record in seen if record.num_rounds != 1]
    assert rounds == [place, MAX_ROUNDS, 20 - 1 - MAX_ROUNDS]


def _greedy(max_tokens):
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def _drained(llm, *requests):
    """The tokens of requests (prompt, length, fields) that run together."""
    sequences = [submit(llm, prompt, _greedy(length), **fields) for prompt, length, fields in requests]
    drain(llm)
    return [s.token_ids for s in sequences]
