"""Log-probabilities are stored at their position, for any chunks and preemptions."""

from functools import reduce

import numpy as np
import pytest

from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, extend_prefix
from tests.support.fakes.fake_engine import MODEL, make_engine, make_request


def expected(tokens: list[int]) -> list[float]:
    """The model's log-probabilities of all tokens except the first."""
    prefixes = [reduce(extend_prefix, tokens[:i], EMPTY_PREFIX) for i in range(1, len(tokens))]
    return [MODEL.logprob(prefix, token) for prefix, token in zip(prefixes, tokens[1:], strict=True)]


@pytest.mark.parametrize("limits", [{}, {"max_chunk_tokens": 1}, {"max_chunk_tokens": 5}, {"num_pages": 18}], ids=str)
def test_every_token_has_its_own(limits):
    engine = make_engine(**limits)
    sequences = [
        engine.add(make_request(str(i), 11 + i, 30, seed=i, logprobs=i % 3, prompt_logprobs=2))[0] for i in range(4)
    ]
    for _ in engine.drain():
        pass
    for i, sequence in enumerate(sequences):
        assert sequence.prompt_logprobs[0] is None
        collected = [entry.logprob for entry in [*sequence.prompt_logprobs[1:], *sequence.logprobs]]
        assert np.allclose(collected, expected(sequence.tokens.tolist()))
        assert {len(entry.top_ids) for entry in sequence.logprobs} == {i % 3}
        assert {len(entry.top_ids) for entry in sequence.prompt_logprobs[1:]} == {2}
    assert (engine.scheduler.stats.num_preemptions > 0) == ("num_pages" in limits)


def test_prompt_logprobs_are_kept_by_the_first_sample_only():
    engine = make_engine()
    first, second = engine.add(make_request("a", 6, 4, n=2, prompt_logprobs=0))
    for _ in engine.drain():
        pass
    assert len(first.prompt_logprobs) == 6
    assert second.prompt_logprobs is None


def test_none_are_kept_where_none_are_asked():
    engine = make_engine()
    (sequence,) = engine.add(make_request("a", 6, 4))
    for _ in engine.drain():
        pass
    assert sequence.logprobs is None
    assert sequence.prompt_logprobs is None
