"""The copies of the kernels of table rows never meet a read: the race detector of Pallas' TPU interpreter finds none,
and finds a planted race."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.dispatch import interpreted_by
from pallas_kernels.table_rows import column_tables, mosaic_tpu
from pallas_kernels.table_rows.api import table_rows
from tests.pallas_kernels.race_findings import race_findings
from tests.pallas_kernels.table_rows.test_table_rows import INDEX, random_tables

MODULES = {False: mosaic_tpu, True: column_tables}


def run(mode, are_multiplied):
    """(whether a copy met a read, whether the rows are right); copies happen as late as they may, or "eager"."""
    tables, index = random_tables({np.uint8: 128, np.int16: 16}), np.resize(INDEX, 20)
    with interpreted_by(pltpu.InterpretParams(detect_races=True, dma_execution_mode=mode)), race_findings() as findings:
        call = jax.jit(partial(table_rows, are_multiplied=are_multiplied, backend="mosaic_tpu"))
        found = jax.block_until_ready(call([*map(jnp.asarray, tables)], jnp.asarray(index)))
    are_right = all((rows == table[index]).all() for rows, table in zip(found, tables, strict=True))
    pltpu.reset_tpu_interpret_mode_state()
    return any(finding.races_found for finding in findings), are_right


@pytest.mark.parametrize("are_multiplied", MODULES)
@pytest.mark.parametrize("mode", ["on_wait", "eager"])
def test_no_copy_meets_a_read(mode, are_multiplied):
    assert run(mode, are_multiplied) == (False, True)


@pytest.mark.parametrize("are_multiplied", MODULES)
def test_tiles_that_are_not_waited_for_are_caught(monkeypatch, are_multiplied):
    """Copies happen early here, so the rows are right all the same."""
    make = pltpu.make_async_copy

    class Started:
        def __init__(self, *args):
            self.start = make(*args).start

        def wait(self):
            """The planted fault."""

    module = MODULES[are_multiplied]
    kernel = module._kernel
    monkeypatch.setattr(
        module, "_kernel", lambda *refs, **sizes: kernel(*refs, **sizes)
    )  # JAX keeps what it has traced
    monkeypatch.setattr(pltpu, "make_async_copy", Started)
    assert run("eager", are_multiplied) == (True, True)
