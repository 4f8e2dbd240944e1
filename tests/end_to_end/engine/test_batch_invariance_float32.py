"""`batch_invariant` in float32, with windows."""

import pytest

from tests.end_to_end.engine import invariance_laws as laws

pytestmark = pytest.mark.default_compiler  # bits are those of the code that users run


class TestFloat32(laws.InvarianceLaws):
    KIND = ("gemma3", "float32", 1)
