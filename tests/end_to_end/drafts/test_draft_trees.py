"""Drafts in trees change no token, although the KV of what is accepted has to be moved."""

from unittest.mock import patch

import numpy as np
import pytest

from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.end_to_end.drafts.test_speculation import requests
from tests.end_to_end.engine.test_overlap_and_multi_step import run
from tests.support.drafting import always, counted, decoys
from tests.support.tiny_engines import tiny_engine


@pytest.mark.thorough
def test_trees_of_which_every_accepted_draft_must_be_moved_give_the_same_text():
    """34 drafts: more nodes than a word of the trees' bits has."""
    prompts, params = requests("gemma3")
    expected, logprobs, _ = run(tiny_engine("gemma3"), prompts, params, 1, is_overlapped=False)
    trees = SpeculativeConfig(method="ngram", num_speculative_tokens=34, prompt_lookup_min=1)
    with decoys():
        llm = always(tiny_engine("gemma3", speculative_config=trees))
    with counted(llm) as seen:
        outputs, found, _ = run(llm, prompts, params, 5, is_overlapped=True)
    assert outputs == expected
    np.testing.assert_allclose(found, logprobs, atol=1e-5)
    proposed, accepted = np.sum(seen, axis=0)
    assert 10 < accepted < proposed / 2


@pytest.mark.thorough
def test_control_paths_that_are_not_moved_give_other_texts():
    prompts, params = requests("llama3")
    expected, _, _ = run(tiny_engine("llama3"), prompts, params, 1, is_overlapped=False)
    trees = SpeculativeConfig(method="ngram", num_speculative_tokens=10, prompt_lookup_min=1)
    module = "jaxserve.runner.step.advance_rows.compact_path"
    with decoys(), patch(module, lambda mesh, layout, kv, slots, nodes, num_kept: kv):
        llm = always(tiny_engine("llama3", speculative_config=trees))
        outputs, _, _ = run(llm, prompts, params, 5, is_overlapped=True)
    assert outputs != expected
