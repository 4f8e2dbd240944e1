"""Beam search on the tiny checkpoints equals transformers', in tokens and scores (scripts/goldens/beams.py)."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from jaxserve import BeamSearchParams, SamplingParams
from jaxserve.engine.tasks.beam_search import beam_search
from tests.support.golden_data import FOLDER, goldens
from tests.support.tiny_engines import tiny_engine

RULES = ("beam_width", "max_tokens", "length_penalty", "early_stopping")
SCARCE = {"llama3": {"num_pages": 11}, "gemma3": {"num_pages": 26, "max_chunk_tokens": 8}}


@cache
def cases(family: str) -> list[dict]:
    return [case for case in json.loads((FOLDER / "beams.json").read_text()) if case["family"] == family]


def search(llm, case: dict):
    """Search after the case's prompts, with its tokens as those that end texts."""
    processor = replace(llm.parts.input_processor, eos_ids=tuple(case["eos_ids"]))
    params = BeamSearchParams(**{name: case[name] for name in RULES}, include_stop_str_in_output=True)
    prompts = [golden.prompt for golden in goldens(case["family"])]
    return beam_search(llm.output_processor, processor, prompts, params, max_num_seqs=llm.parts.sizes.max_num_seqs)


def check_results(outs, case: dict) -> None:
    prompts = [golden.prompt for golden in goldens(case["family"])]
    for prompt, out, texts, scores in zip(prompts, outs, case["texts"], case["scores"], strict=True):
        assert [s.tokens[len(prompt) :] for s in out.sequences] == texts, case
        np.testing.assert_allclose([s.score for s in out.sequences], scores, rtol=1e-5)


def check(llm, case: dict) -> None:
    check_results(search(llm, case), case)
    assert llm.stats.num_pages_free + llm.stats.num_pages_cached == llm.parts.sizes.num_pages - 1


@pytest.mark.thinned(1)
@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_tokens_and_scores_equal_those_of_transformers(family):
    """Three prompts a case, ends reached and not; gemma3 has windows that the longest prompt passes.

    Every seventh case: there are nine rules a width, so all widths and rules are among them.
    """
    llm = tiny_engine(family)
    for case in cases(family)[family == "gemma3" :: 7]:
        check(llm, case)
    assert llm.stats.num_preemptions == 0
    ended = {len(text) < case["max_tokens"] for case in cases(family) for texts in case["texts"] for text in texts}
    assert ended == {True, False}


@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_the_goldens_distinguish_widths_and_rules(family):
    def results(name, value):
        return [case["texts"] for case in cases(family) if case[name] == value and case["eos_ids"]]

    assert len(cases(family)) > 50
    options = {"early_stopping": (False, True, "never"), "length_penalty": (0.0, 1.0), "beam_width": (1, 2)}
    for name, values in options.items():
        found = [json.dumps(results(name, value)) for value in values]
        assert len(set(found)) == len(values)


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "eviction"), [("llama3", None), ("gemma3", "lru")])
def test_a_small_pool_changes_nothing(family, eviction):
    llm = tiny_engine(family, **SCARCE[family], prefix_eviction=eviction)
    before = llm.stats.num_preemptions
    for case in cases(family)[::27]:
        check(llm, case)
    assert llm.stats.num_preemptions > before


@pytest.mark.thinned(1)
@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_other_requests_change_nothing(family):
    llm, params = tiny_engine(family), SamplingParams(max_tokens=40, seed=1, n=2, ignore_eos=True)
    prompt = goldens(family)[1].prompt
    alone = [sample.token_ids for sample in llm.generate([prompt], params, use_tqdm=False)[0].outputs]
    stream, found = llm.stream(prompt, params), ([], [])
    first = next(stream)
    check_results(search(llm, cases(family)[-1]), cases(family)[-1])
    for piece in (first, *stream):
        for sample in piece.outputs:
            found[sample.index].extend(sample.token_ids)
    assert list(found) == alone


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_one_beam_without_a_penalty_is_greedy(family):
    llm, prompts = tiny_engine(family), [golden.prompt for golden in goldens(family)]
    params = BeamSearchParams(beam_width=1, max_tokens=24, length_penalty=0.0, include_stop_str_in_output=True)
    greedy = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=24), use_tqdm=False)
    outs = llm.beam_search(prompts, params, use_tqdm=False)
    for prompt, out, wanted in zip(prompts, outs, greedy, strict=True):
        (found,) = out.sequences
        assert found.tokens == prompt + wanted.outputs[0].token_ids
        assert found.finish_reason == wanted.outputs[0].finish_reason
