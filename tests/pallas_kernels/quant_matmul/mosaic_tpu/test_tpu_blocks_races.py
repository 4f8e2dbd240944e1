"""Steps of the TPU kernel of packed blocks meet in no memory, and read nothing that none has written: by the race
detector of Pallas' TPU interpreter, whose memory is NaN at first."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.dispatch import interpreted_by
from pallas_kernels.quant_matmul.api import quant_matmul
from pallas_kernels.quant_matmul.mosaic_tpu import group_scales
from tests.pallas_kernels.matmul.matmul_checks import errors
from tests.pallas_kernels.quant_matmul.mosaic_tpu.test_tpu_blocks import TPU, truth
from tests.pallas_kernels.quant_matmul.mosaic_tpu.tpu_forms import LAYERS, kept_on_tpu, random_stack
from tests.pallas_kernels.race_findings import race_findings


def run(form, num_inputs):
    """(whether two accesses met, of each kernel, and the largest error). Two tiles of outputs, the second in part."""
    stack = random_stack(kept_on_tpu(form), num_inputs, 192)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(5, num_inputs)), jnp.float32)
    params = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan")
    with interpreted_by(params), race_findings() as findings:
        y = jax.block_until_ready(jax.jit(partial(quant_matmul, spec=TPU))(x, stack, jnp.int32(LAYERS - 1)))
    pltpu.reset_tpu_interpret_mode_state()
    return [finding.races_found for finding in findings], errors(np.asarray(y), truth(x, stack, TPU)).max()


@pytest.mark.parametrize(("form", "num_inputs"), [("Q4_0", 192), ("Q4_K", 256), ("NF4-g64 nested, parted", 512)])
def test_no_two_accesses_meet(form, num_inputs):
    found, error = run(form, num_inputs)
    assert found == [False]
    assert error < 2e-5


def test_scales_that_are_not_written_are_seen(monkeypatch):
    monkeypatch.setattr(group_scales, "compute", lambda *args: None)
    assert run("Q4_0", 192)[1] == np.inf
