"""Device half against transformers: logits of tiny random checkpoints, whatever the mesh and the attention back end."""

import numpy as np
import pytest

from tests.support.goldens import FAMILIES, checkpoint, goldens
from tests.support.naive import NaiveModel

TOLERANCE = 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("size", "backend"), [(1, "reference"), (1, "xla"), (2, "xla"), (4, "reference")])
def test_logits_equal_transformers(family, size, backend):
    model = NaiveModel.load(checkpoint(family), tensor_parallel_size=size, backend=backend)
    for golden in goldens(family):
        np.testing.assert_allclose(model.logits(golden.prompt), golden.logits, atol=TOLERANCE)


def test_a_wrong_rope_base_is_noticed():
    """Control: the tolerance is tight enough to see a small fault in one layer kind's frequencies."""
    from dataclasses import replace

    model = NaiveModel.load(checkpoint("gemma3"), backend="xla")
    local, glob = model.config.kinds
    model.config = replace(model.config, kinds=(replace(local, rope=replace(local.rope, base=9_900.0)), glob))
    golden = goldens("gemma3")[-1]
    assert np.abs(model.logits(golden.prompt) - golden.logits).max() > TOLERANCE
