"""Every back end adds what the matrices of each token's adapter say, with NaN in every page that is not theirs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.lora_matmul import api
from pallas_kernels.lora_matmul.workload_arguments import LoraArguments, make_arguments
from pallas_kernels.lora_matmul.workloads import WORKLOADS

BOUNDS = {"float32": 1e-5, "bfloat16": 1e-5}  # x and matrices are taken as they are stored; sums are float32


run = jax.jit(api.lora_matmul, static_argnames=("site", "backend"))


def added(args: LoraArguments, backend: str) -> list[np.ndarray]:
    result = run(args.x, args.pool, args.layer, args.group, args.batch, site=args.site, backend=backend)
    return [np.asarray(part) for part in result]


def error(found: list[np.ndarray], args: LoraArguments) -> float:
    expected = args.expected()
    assert [part.shape for part in found] == [part.shape for part in expected]
    size = max(1.0, *(np.abs(part).max() for part in expected))
    return max(np.abs(part - whole).max() for part, whole in zip(found, expected, strict=True)) / size


def check(name: str, backend: str) -> None:
    args = make_arguments(WORKLOADS[name])
    assert error(added(args, backend), args) < BOUNDS[WORKLOADS[name].dtype]


@pytest.mark.thinned(8)
@pytest.mark.parametrize("backend", ["xla", "reference"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_each_token_gets_what_its_adapter_adds(name, backend):
    check(name, backend)


# One of each kind: to interpret both kernels takes 2 s of CPU time.
@pytest.mark.parametrize("name", ["high ranks", "mixed, bfloat16", "SmolLM2"])
def test_the_kernels_for_tpu_add_the_same(name):
    check(name, "mosaic_tpu")


def test_adapters_of_other_rows_are_an_error_that_is_seen():
    """The control: with the places of tokens exchanged, results are far outside of the bound."""
    args = make_arguments(WORKLOADS["decode"])
    places = np.asarray(args.batch.places)
    other = replace(args, batch=replace(args.batch, places=jnp.asarray(np.where(places == 1, 4, places))))
    assert error(added(other, "xla"), args) > 0.1


def test_tokens_of_one_row_alone_have_the_bits_that_they_have_among_others():
    args = make_arguments(WORKLOADS["decode"])
    together = added(args, "xla")
    for t in range(len(args.x)):
        places = jnp.zeros_like(args.batch.places).at[t].set(args.batch.places[t])
        alone = added(replace(args, batch=replace(args.batch, places=places)), "xla")
        for part, whole in zip(alone, together, strict=True):
            np.testing.assert_array_equal(part[t], whole[t])
