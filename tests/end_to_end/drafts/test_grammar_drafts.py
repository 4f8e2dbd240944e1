"""Drafts change no token of a constrained text: each is masked by what the grammar allows after those before it."""

from dataclasses import replace
from unittest.mock import patch

import jax
import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.constrained.matchers import Matchers
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.scheduler.constraints import Constraints
from tests.jaxserve.constrained.small_vocabulary import TOKENIZER
from tests.support.drafting import always, counted
from tests.support.golden_data import goldens
from tests.support.tiny_engines import SMALL, drain, driven, rescheduled, tiny_engine

END = 319  # has no bytes: it ends texts
METHODS = {
    "ngram": {"num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3},
    "suffix": {"num_speculative_tokens": 4, "suffix_decoding_cached_tokens": 300},
}
FORMS = (
    {"regex": r'(\{"orderId":(12|3[0-9]),"Id":"(ab|abb){1,3}"\},)+'},
    {"regex": r"([ab]{2}|true, )+"},
    {"json": {"type": "array", "items": {"enum": ["ab", "abb"]}}, "disable_any_whitespace": True},
    None,  # an unconstrained row in the same batch
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


def plain(matchers):
    return with_grammars(rescheduled(tiny_engine("llama3"), None), matchers)


def drafting(matchers, *, method="ngram", prefix_eviction=None, **less):
    whole = tiny_engine("llama3", speculative_config=SpeculativeConfig(method=method, **METHODS[method]))
    return with_grammars(always(rescheduled(whole, prefix_eviction, **less)), matchers)


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


def add(llm, prompt, params):
    """Tiny models have no tokenizer, and admit no constraint."""
    (request,) = llm.admit([Prompt(None, prompt)], replace(params, structured_outputs=None))
    return llm.parts.engine.add(replace(request, params=params, eos_ids=(END,)))[0]


def run(llm, num_requests=14, is_overlapped=True):
    """(tokens, finish reason) of all samples, log-probabilities, and how many steps it took."""
    state = llm.parts.engine.scheduler.state
    with driven(llm, 5, is_overlapped) as steps:
        for i in range(num_requests):
            prompt = goldens("llama3")[i % 3].prompt[: 10 + i]
            add(llm, prompt, settings(i))
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


@pytest.mark.thinned(1)
@pytest.mark.parametrize("method", METHODS)
def test_texts_are_those_without_drafts(method, matchers, expected):
    """Of trees, such as those of suffixes, rows with a grammar have one path."""
    llm = drafting(matchers, method=method)
    with counted(llm) as seen:
        texts, logprobs, num_steps = run(llm)
    assert texts == expected[0]
    np.testing.assert_allclose(logprobs, expected[1], atol=2e-5)
    proposed, accepted = np.sum(seen, axis=0)
    assert 30 < accepted < proposed
    assert num_steps < expected[2]
    assert llm.stats.num_pages_free == llm.parts.spec.sizes.num_pages - 1


def test_a_text_that_repeats_itself_takes_fewer_steps(matchers):
    form = {"regex": "([abc]{3} ?)+"}
    params = SamplingParams(temperature=0, max_tokens=90, structured_outputs=form)

    def steps(llm):
        with driven(llm, 1, is_overlapped=True) as planned:
            sequence = add(llm, goldens("llama3")[1].prompt, params)
            drain(llm)
        return len(planned), sequence.token_ids

    (num_plain, expected), (num_drafting, found) = steps(plain(matchers)), steps(drafting(matchers))
    assert found == expected
    assert num_drafting < 0.7 * num_plain


def test_texts_do_not_depend_on_overlap_preemption_and_cached_prefixes(matchers, expected):
    whole = drafting(matchers)
    num_pages = 1 + whole.parts.spec.programs.groups.max_sequence_pages(SMALL["max_model_len"], chunk=7)
    for less, is_overlapped in (({}, False), ({"num_pages": num_pages, "max_chunk_tokens": 7}, True)):
        llm = drafting(matchers, prefix_eviction="hits", **less)
        texts, _, _ = run(llm, is_overlapped=is_overlapped)
        assert texts == expected[0]
        assert (llm.stats.num_preemptions > 0) == ("num_pages" in less)
        llm.reset_prefix_cache()
        assert llm.stats.num_pages_free == llm.parts.spec.sizes.num_pages - 1


@pytest.mark.thorough
def test_the_programs_of_drafts_are_compiled_by_the_warm_up(matchers):
    """Each once, and all update the whole state in place."""
    llm = drafting(matchers)
    runner = llm.parts.runner
    runner.warm_up(runner.programs.all(llm.parts.spec.buckets.all()))
    before = dict(runner.programs.traces)
    run(llm, num_requests=4)
    assert runner.programs.traces == before
    names = [name for name in runner.executables if name.startswith("draw_verify")]
    assert len(names) == len(llm.parts.spec.buckets.verify)
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(runner._state))
    assert {runner.executables[name].memory_analysis().alias_size_in_bytes for name in names} == {state_bytes}


def test_the_process_of_grammars_is_lost_between_drafts(matchers, expected):
    llm, lost = drafting(matchers), []
    along = Matchers.along

    def lose(self, drafts):
        if len(lost) < 3:
            process = self._process._process.process
            process.kill()
            lost.append(process.wait())
        return along(self, drafts)

    with patch.object(Matchers, "along", lose):
        assert run(llm)[0] == expected[0]
    assert len(lost) == 3


def masks_of_the_node_before(constraints, drafts):
    return {sequence_id: masks[:-1] for sequence_id, (_, masks) in constraints._matchers.along(drafts).items()}


def test_control_with_the_masks_of_the_node_before_texts_differ(matchers, expected):
    with patch.object(Constraints, "masks_along", masks_of_the_node_before):
        assert run(drafting(matchers))[0] != expected[0]
