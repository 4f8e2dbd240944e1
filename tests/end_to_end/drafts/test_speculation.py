"""Drafts change no token, text, log-probability or finish reason."""

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.buckets import MAX_ROUNDS
from jaxserve.core.errors import RequestError
from jaxserve.core.options.beam_search_params import BeamSearchParams
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.end_to_end.engine.test_overlap_and_multi_step import FEATURES, pairwise, run
from tests.support.drafting import always, counted
from tests.support.golden_data import goldens
from tests.support.tiny_engines import tiny_engine

DRAFTS = SpeculativeConfig(method="ngram", num_speculative_tokens=3, prompt_lookup_min=1, prompt_lookup_max=3)
ROWS = pairwise(FEATURES | {"repetition_penalty": (1.0, 1.3)})


def drafting(family, **options):
    return always(tiny_engine(family, speculative_config=DRAFTS, **options))


def requests(family):
    """Prompts that repeat themselves, with every pair of features."""
    prompts = [(goldens(family)[i % 3].prompt[: 4 + i] * 3)[: 20 + i] for i in range(len(ROWS))]
    return prompts, [SamplingParams(max_tokens=12 + 5 * (i % 4), seed=i, **row) for i, row in enumerate(ROWS)]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("family", "options", "ways"),
    [
        ("llama3", {}, [(1, False), (5, True)]),
        ("llama3", {"max_decode_rounds": 1}, [(1, True)]),
        ("gemma3", {"tensor_parallel_size": 2}, [(5, True)]),
    ],
)
def test_every_pair_of_features_gives_the_same_text(family, options, ways):
    prompts, params = requests(family)
    expected, logprobs, _ = run(tiny_engine(family), prompts, params, 1, is_overlapped=False)
    llm = drafting(family, **options)
    for num_rounds, is_overlapped in ways:
        with counted(llm) as seen:
            outputs, found, _ = run(llm, prompts, params, num_rounds, is_overlapped)
        assert outputs == expected, (num_rounds, is_overlapped)
        np.testing.assert_allclose(found, logprobs, atol=2e-5)  # two devices add in another order
        proposed, accepted = np.sum(seen, axis=0)
        assert 10 < accepted < proposed
    for prompt, param in list(zip(prompts, params, strict=True))[::8]:
        (alone,), _, _ = run(llm, [prompt], param, llm.config.max_decode_rounds or MAX_ROUNDS, is_overlapped=True)
        assert alone == expected[prompts.index(prompt)]


def test_beams_do_not_draft_and_find_the_same_texts():
    prompts = [(golden.prompt * 3)[:60] for golden in goldens("llama3")]
    params = BeamSearchParams(beam_width=3, max_tokens=12)
    llm = drafting("llama3")
    with counted(llm) as seen:
        found = llm.beam_search(prompts, params, use_tqdm=False)
    assert not seen
    expected = tiny_engine("llama3").beam_search(prompts, params, use_tqdm=False)
    assert [[beam.tokens for beam in one.sequences] for one in found] == [
        [beam.tokens for beam in one.sequences] for one in expected
    ]


@pytest.mark.thorough
def test_synthetic_acceptance_is_that_of_the_option():
    """0.7 accepts 0.7 + 0.49 + 0.343 of three drafts on average, and each pass has drafts."""
    options = {"method": "ngram", "num_speculative_tokens": 3, "synthetic_acceptance": 0.7}
    llm = always(tiny_engine("llama3", speculative_config=SpeculativeConfig(**options)))
    prompts = [golden.prompt for golden in goldens("llama3")] * 2
    params = [SamplingParams(seed=i, max_tokens=90, ignore_eos=True) for i in range(len(prompts))]
    with counted(llm) as seen:
        llm.generate(prompts, params, use_tqdm=False)
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed > 3 * 20 * len(prompts)
    assert abs(accepted / (proposed / 3) - 1.533) < 0.25  # 2.5 standard errors


def test_a_request_may_do_without_drafts():
    llm, prompt = drafting("llama3"), goldens("llama3")[0].prompt * 2
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, speculation=False)
    with counted(llm) as seen:
        (output,) = llm.generate([prompt], params, use_tqdm=False)
    assert not np.sum(seen)
    (plain,) = tiny_engine("llama3").generate(
        [prompt], SamplingParams(**vars(params) | {"speculation": None}), use_tqdm=False
    )
    assert output.outputs[0].token_ids == plain.outputs[0].token_ids
    with pytest.raises(RequestError, match="speculation=True: this engine was built without speculative_config"):
        tiny_engine("llama3").generate([prompt], SamplingParams(speculation=True), use_tqdm=False)
