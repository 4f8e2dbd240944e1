"""The GPU kernels, interpreted, add what the matrices of each token's adapter say, with NaN in every page that is not
theirs."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.lora_matmul import api
from pallas_kernels.lora_matmul.mosaic_gpu.expand_thread_block import MAX_DEPTH
from pallas_kernels.lora_matmul.mosaic_gpu.shrink_thread_block import CHUNKS
from pallas_kernels.lora_matmul.workload_arguments import LoraArguments, make_arguments
from pallas_kernels.lora_matmul.workloads import TINY, TINY_PAGE, LoraWorkload, sites_of
from tests.pallas_kernels.host_callbacks import host_callbacks

BOUND = 1e-5  # inputs and matrices are taken as they are stored; sums are float32
CASES = {
    # Tokens without an adapter, an adapter without this site, groups that are not full, and part of a chunk.
    "several adapters": LoraWorkload("qkv", TINY, TINY_PAGE, (8, 0, 20), 14),
    "high ranks": LoraWorkload("gate_up", TINY, TINY_PAGE, (8 * MAX_DEPTH + 12, 1), 3),
    "wide rows": LoraWorkload("o", sites_of(600, 520, 128, 128), (1, 16, 512), (8,), 2),
    # 17 chunks of inputs in three steps, whose rows are copied 64 at a time; rows of four swizzles.
    "long inputs": LoraWorkload("down", sites_of(128, 128, 128, 17 * 256 - 40), (2, 32, 256), (12,), 3),
}


@pytest.fixture(autouse=True)
def _fast_callbacks() -> Iterator[None]:
    with host_callbacks():
        yield


plan = jax.jit(partial(api.plan, backend="mosaic_gpu"))
run = jax.jit(
    partial(api.lora_matmul, backend="mosaic_gpu"),
    static_argnames="site",
    compiler_options={"xla_backend_optimization_level": 0},
)


def added(args: LoraArguments) -> list[np.ndarray]:
    result = run(args.x, args.pool, args.layer, args.group, plan(args.batch), site=args.site)
    return [np.asarray(part) for part in result]


@pytest.mark.parametrize("name", CASES)
def test_each_token_gets_what_its_adapter_adds(name):
    args = make_arguments(replace(CASES[name], dtype="bfloat16"))
    for part, expected in zip(added(args), args.expected(), strict=True):
        assert part.shape == expected.shape
        assert np.abs(part - expected).max() < BOUND * max(1.0, np.abs(expected).max())


def test_cases_fill_every_buffer_again_and_leave_chunks_without_inputs():
    """Else the cases above would show neither."""
    assert make_arguments(CASES["high ranks"]).batch.num_blocks.max() > MAX_DEPTH
    long = make_arguments(CASES["long inputs"])
    num_chunks = -(-long.site.parts[0].num_inputs // long.site.width)
    assert num_chunks > CHUNKS
    assert num_chunks % CHUNKS


def test_adapters_of_other_rows_are_an_error_that_is_seen():
    """The control: with the places of tokens exchanged, results are far outside of the bound."""
    args = make_arguments(replace(CASES["several adapters"], dtype="bfloat16"))
    places = np.asarray(args.batch.places)
    other = replace(args, batch=replace(args.batch, places=jnp.asarray(np.where(places == 1, 3, places))))
    assert max(np.abs(part - old).max() for part, old in zip(added(other), args.expected(), strict=True)) > 0.1


def test_a_token_alone_has_the_bits_that_it_has_among_others():
    args = make_arguments(replace(CASES["several adapters"], dtype="bfloat16"))
    token = int(np.argmax(np.asarray(args.batch.places) == 3))
    places = jnp.zeros_like(args.batch.places).at[token].set(3)
    alone = added(replace(args, batch=replace(args.batch, places=places)))
    for part, among_others in zip(alone, added(args), strict=True):
        np.testing.assert_array_equal(part[token], among_others[token])
        assert not np.delete(part, token, axis=0).any(), "those without an adapter"


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        ((1, 2, 2, 16, 128), "float32", "it multiplies matrices of bfloat16 or float16, not float32"),
        ((1, 2, 2, 16, 192), "bfloat16", "rows have 192 numbers"),
        ((1, 2, 1, 4, 128), "bfloat16", "pages of 4 rows"),
    ],
)
def test_pools_that_the_kernels_do_not_serve_are_left_to_others(shape, dtype, reason):
    args = make_arguments(CASES["several adapters"])
    x, pool = args.x.astype(dtype), jnp.zeros(shape, dtype)
    with pytest.raises(NotImplementedError, match=f"mosaic_gpu: {reason}"):
        api.lora_matmul(x, pool, jnp.int32(0), args.group, args.batch, args.site, backend="mosaic_gpu")
