"""`batch_invariant` in bfloat16, with windows; `scripts/prove invariance` has the other kinds, and the
control: without the option bits differ."""

import pytest

from tests.support.invariance_laws import Kind, different_bits, num_changed_by_preemption, num_completions

pytestmark = pytest.mark.default_compiler  # bits are those of the code that users run


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.thorough)], ids=["one device", "two devices"])
def kind(request):
    return Kind("mistral", "bfloat16", request.param)


def test_bits_depend_on_the_request_alone(kind):
    assert different_bits(kind) == []


def test_preemption_changes_no_bit(kind):
    assert num_changed_by_preemption(kind) == 0


def test_many_completions_among_random_others_are_one(kind):
    """200 of them; the proof has a thousand."""
    assert num_completions(kind, 200) == 1
