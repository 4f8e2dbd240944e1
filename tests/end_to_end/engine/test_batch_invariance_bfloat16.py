"""`batch_invariant` in bfloat16, on two devices."""

import pytest

from tests.end_to_end.engine import invariance_laws as laws

pytestmark = pytest.mark.default_compiler  # bits are those of the code that users run


class TestBfloat16(laws.InvarianceLaws):
    KIND = ("llama3", "bfloat16", 2)
