"""`batch_invariant` in bfloat16, with windows, on two devices; `scripts/prove invariance` has the other kinds, and the
control: without the option bits differ."""

import pytest

from tests.support.invariance_laws import Kind, different_bits, num_changed_by_preemption, num_completions

pytestmark = pytest.mark.default_compiler  # bits are those of the code that users run

KIND = Kind("mistral", "bfloat16", 2)


def test_bits_depend_on_the_request_alone():
    assert different_bits(KIND) == []


def test_preemption_changes_no_bit():
    assert num_changed_by_preemption(KIND) == 0


def test_many_completions_among_random_others_are_one():
    """200 of them; the proof has a thousand."""
    assert num_completions(KIND, 200) == 1
