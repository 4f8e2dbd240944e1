"""`batch_invariant` in bfloat16, on two devices."""

import pytest

from tests.end_to_end.engine import invariance_laws as laws

pytestmark = pytest.mark.default_compiler  # bits are those of the code that users run

KIND = ("llama3", "bfloat16", 2)


def test_bits_depend_on_the_request_alone():
    laws.check_bits_depend_on_the_request_alone(*KIND)


def test_preemption_changes_no_bit():
    laws.check_preemption_changes_no_bit(*KIND)


def test_a_thousand_completions_beside_random_others_are_one():
    laws.check_a_thousand_completions_are_one(*KIND)
