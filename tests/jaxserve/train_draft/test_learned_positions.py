"""Rows of learned positions have the guesses of their texts, and none between two texts."""

import numpy as np

from jaxserve.train_draft.learned_positions import learned_positions
from jaxserve.train_draft.own_texts import OwnTexts

TEXT_LEN, NUM_BEFORE = 12, 3


def guesses(tokens, is_own, hidden, ahead):
    """(state, token) of all guesses that a head is trained on, as its loss takes them."""
    return [
        (int(hidden[row, place, 0]), int(tokens[row, place + ahead]))
        for row in range(len(tokens))
        for place in range(tokens.shape[1] - ahead)
        if is_own[row, place + ahead]
    ]


def test_guesses_are_those_of_the_texts_but_for_the_ends_of_rows():
    random = np.random.default_rng(0)
    starts = random.integers(1, 8, 30).astype(np.int32)
    ends = (starts + random.integers(0, TEXT_LEN - 7, 30)).astype(np.int32)
    tokens = random.integers(1, 1000, (30, TEXT_LEN)).astype(np.int32)
    texts = OwnTexts(tokens, starts, ends)
    hidden = np.arange(1, tokens.size + 1, dtype=np.float32).reshape(30, TEXT_LEN, 1)
    rows = learned_positions(texts, hidden, NUM_BEFORE)
    assert rows[0].shape == rows[1].shape == rows[2].shape[:2]
    assert len(rows[0]) < 0.7 * len(tokens)
    assert rows[1].sum() == texts.is_generated.sum()
    for ahead in range(1, NUM_BEFORE + 1):
        expected, found = guesses(tokens, texts.is_generated, hidden, ahead), guesses(*rows, ahead)
        of_texts = [guess for guess in found if guess[0]]  # not before the first token of a prompt
        assert set(of_texts) <= set(expected)
        assert len(set(of_texts)) == len(of_texts) >= len(expected) - ahead * len(rows[0])
    crossing = guesses(*rows, NUM_BEFORE + 1)
    assert not set(crossing) <= set(guesses(tokens, texts.is_generated, hidden, NUM_BEFORE + 1)), "a control"
