"""Decoding is timed on the texts that greedy decoding gives, after half of each piece, and the first run is no part."""

import numpy as np
import pytest

from jaxserve import pure
from jaxserve.bench.quality import decode_speed
from jaxserve.bench.quality.decode_speed import MAX_STEPS, NUM_RUNS, NUM_TEXTS, decode_rate
from tests.support.golden_data import checkpoint, goldens

NUM_SECONDS = 2.0


@pytest.fixture
def runs(monkeypatch):
    """The texts of each timed run; by the clock the first takes longer than the others."""
    now, found = [0.0], []
    compiled = decode_speed._continued

    def timed(*args):
        result = compiled(*args)
        found.append(np.asarray(result[0]))
        now[0] += NUM_SECONDS + (100 if len(found) == 1 else len(found))
        return result

    monkeypatch.setattr(decode_speed, "_continued", timed)
    monkeypatch.setattr(decode_speed.time, "monotonic", lambda: now[0])
    return found


def test_greedy_texts_are_timed(runs):
    golden = goldens("llama3")[1]
    half, texts = len(golden.prompt), 3
    piece = [*golden.prompt, *[5] * half]  # whose second half is not read
    found = decode_rate(pure.load(str(checkpoint("llama3")), dtype="float32"), np.array([piece] * texts, np.int32))
    assert len(runs) == NUM_RUNS
    for tokens in runs:
        assert tokens.T.tolist() == [golden.greedy[: min(MAX_STEPS, half)]] * texts
    assert found == pytest.approx(texts * min(MAX_STEPS, half) / (NUM_SECONDS + 2))


def test_a_few_texts_are_enough(runs):
    pieces = np.ones((NUM_TEXTS + 5, 2), np.int32)
    decode_rate(pure.load(str(checkpoint("llama3")), dtype="float32"), pieces)
    assert {tokens.shape for tokens in runs} == {(1, NUM_TEXTS)}
