"""Drafts change no token of a constrained text: each is masked by what the grammar allows after those before it."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.constrained.matchers import Matchers
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.scheduler.constraints import Constraints
from jaxserve.scheduler.step import late_rows
from tests.jaxserve.constrained.small_vocabulary import TOKENIZER
from tests.support.drafting import always, counted
from tests.support.golden_data import goldens
from tests.support.tiny_engines import drain, driven, rescheduled, submit, tiny_engine

END = 319  # has no bytes: it ends texts
METHODS = {
    "ngram": {"num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3},
    "suffix": {"num_speculative_tokens": 4},
}
FORMS = (
    {"regex": r'(\{"orderId":(12|3[0-9]),"Id":"(ab|abb){1,3}"\},)+'},
    {"regex": r"([ab]{2}|true, )+"},
    {"json": {"type": "array", "items": {"enum": ["ab", "abb"]}}, "disable_any_whitespace": True},
    None,  # beside them
    {"regex": "(ab ?){9}!"},
)
OPTIONS = ({}, {"logprobs": 3}, {"allowed_token_ids": [*range(0, 300, 2), *range(301, 319), END]}, {"n": 2})
PLAIN_OPTIONS = {"top_k": 40, "min_tokens": 5}


@pytest.fixture(scope="module")
def matchers():
    matchers = Matchers(constraint_vocabulary(TOKENIZER, 320))
    yield matchers
    matchers.close()


def with_grammars(llm, matchers):
    llm.parts.engine.scheduler.state.constraints = Constraints(matchers)
    return llm


def plain(matchers, family="llama3"):
    return with_grammars(rescheduled(tiny_engine(family), None), matchers)


def drafting(matchers, family="llama3", *, method="ngram", prefix_eviction=None, less=None, **options):
    branches, engine_options = options.pop("branches", {}), options
    config = SpeculativeConfig(method=method, **METHODS[method], **branches)
    whole = tiny_engine(family, speculative_config=config, **engine_options)
    return with_grammars(always(rescheduled(whole, prefix_eviction, **(less or {}))), matchers)


def settings(i):
    form = FORMS[i % len(FORMS)]
    return SamplingParams(
        temperature=0.7 * (i % 3 > 0),
        seed=i,
        max_tokens=20 + 3 * i,
        structured_outputs=form,
        **OPTIONS[i % 4],
        **(PLAIN_OPTIONS if i % 2 else {}),
        **({"presence_penalty": 0.4} if i == 7 else {}),
    )


def run(llm, num_requests=14, is_overlapped=True):
    """(tokens, finish reason) of all samples, log-probabilities, and how many steps it took."""
    state = llm.parts.engine.scheduler.state
    with driven(llm, 5, is_overlapped) as steps:
        for i in range(num_requests):
            prompt = goldens("llama3")[i % 3].prompt[: 10 + i]
            params = settings(i)
            (request,) = llm.admit([Prompt(None, prompt)], replace(params, structured_outputs=None))
            llm.parts.engine.add(replace(request, params=params, eos_ids=(END,)))  # tiny models have no tokenizer
        sequences = list(state.sequences.values())
        drain(llm)
    assert not state.constraints._masks
    assert not state.mask_rows.references
    logprobs = [(p.logprob, *p.top) for s in sequences for p in s.logprobs or []]
    return [(s.token_ids, s.finish_reason) for s in sequences], logprobs, len(steps)


@pytest.fixture(scope="module")
def expected(matchers):
    found = run(plain(matchers))
    assert {reason for _, reason in found[0]} >= {"stop", "length"}
    return found


WAYS = {
    "chains": {},
    "trees": {"branches": {"prompt_lookup_branches": 2}},
    "suffixes": {"method": "suffix"},
    "two devices": {"tensor_parallel_size": 2},
    "one round": {"max_decode_rounds": 1},
}


@pytest.mark.parametrize("way", WAYS)
def test_texts_are_those_without_drafts(way, matchers, expected):
    llm = drafting(matchers, **WAYS[way])
    with counted(llm) as seen:
        texts, logprobs, num_steps = run(llm)
    assert texts == expected[0]
    np.testing.assert_allclose(logprobs, expected[1], atol=2e-5)
    proposed, accepted = np.sum(seen, axis=0)
    assert 30 < accepted < proposed
    assert num_steps < expected[2]
    assert llm.stats.num_pages_free == llm.parts.spec.sizes.num_pages - 1
