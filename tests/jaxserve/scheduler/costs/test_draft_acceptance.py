"""What is expected of a row's drafts is what its last passes showed, and what all rows' passes showed before."""

import numpy as np
import pytest

from jaxserve.scheduler.costs.draft_acceptance import NEVER, DraftAcceptance

FOUR = np.arange(4)


def passes(acceptance: DraftAcceptance, slots, accepted, *, num_passes=1, proposer=0, tried=None) -> None:
    """Rows of which each was refused one draft, if `tried` does not say otherwise."""
    slots, accepted = np.array(slots), np.array(accepted)
    acceptance.age(slots, num_passes)
    tried = accepted + num_passes if tried is None else np.array(tried)
    proposers = np.full(len(slots), proposer)
    acceptance.observe(proposers, slots, np.full(len(slots), num_passes), accepted, tried)


def test_nothing_is_expected_before_there_were_drafts():
    acceptance = DraftAcceptance(2, 4)
    np.testing.assert_array_equal(acceptance.expected(FOUR), np.zeros((2, 4)))
    assert (acceptance.unseen >= NEVER).all()


def test_rows_become_what_their_own_passes_show():
    acceptance = DraftAcceptance(1, 4)
    for _ in range(60):
        passes(acceptance, FOUR, [0, 1, 3, 9])
    expected = acceptance.expected(FOUR)[0]
    assert (np.diff(expected) > 0).all()
    mean = (0 + 1 + 3 + 9) / (13 + 4)
    for row, own in enumerate([0, 1 / 2, 3 / 4, 9 / 10]):
        assert min(own, mean) < expected[row] < max(own, mean)


def test_a_new_sequence_is_like_all_and_only_its_own_slot_is_forgotten():
    acceptance = DraftAcceptance(1, 4)
    for _ in range(60):
        passes(acceptance, FOUR, [0, 1, 3, 9])
    before = acceptance.expected(FOUR)[0]
    acceptance.forget(np.array([0]))
    after = acceptance.expected(FOUR)[0]
    np.testing.assert_array_equal(after[1:], before[1:])
    assert after[0] == pytest.approx(13 / 17, abs=1e-6)
    assert acceptance.unseen[0].tolist() == [NEVER, 0, 0, 0]


def test_a_row_without_drafts_becomes_like_all_again():
    acceptance = DraftAcceptance(1, 4)
    for _ in range(60):
        passes(acceptance, FOUR, [0, 1, 3, 9])
    mean, own = 13 / 17, acceptance.expected(FOUR)[0, 0]
    acceptance.age(FOUR, 10)
    later = acceptance.expected(FOUR)[0, 0]
    acceptance.age(FOUR, 200)
    assert own < later < mean
    assert acceptance.expected(FOUR)[0, 0] == pytest.approx(mean, abs=1e-3)
    assert acceptance.unseen[0].tolist() == [210] * 4


def test_the_mean_is_one_of_texts():
    """Two texts in turns, of which one gains and drafts in all of its 40 passes, the other in each tenth of 40."""
    acceptance, slot = DraftAcceptance(1, 1), np.array([0])
    for _ in range(40):
        acceptance.forget(slot)
        for _ in range(40):
            passes(acceptance, slot, [1])
        acceptance.forget(slot)
        for number in range(40):
            if number % 10:
                acceptance.age(slot, 1)
            else:
                passes(acceptance, slot, [0])
    acceptance.forget(slot)
    in_fact, of_passes = 0.5 / 1.5, 40 / (2 * 40 + 4)
    assert abs(acceptance.expected(slot)[0, 0] - in_fact) < 0.1 < of_passes - in_fact


def test_proposers_are_apart_and_several_passes_count_as_such():
    acceptance, other = DraftAcceptance(2, 4), DraftAcceptance(2, 4)
    for _ in range(4):
        passes(acceptance, FOUR, [2] * 4, proposer=1)
    passes(other, FOUR, [8] * 4, num_passes=4, proposer=1)
    assert (acceptance.expected(FOUR)[0] == 0).all()
    assert (acceptance.unseen[0] >= NEVER).all()
    np.testing.assert_allclose(acceptance.expected(FOUR)[1], 2 / 3)
    np.testing.assert_allclose(other.expected(FOUR)[1], 2 / 3)
