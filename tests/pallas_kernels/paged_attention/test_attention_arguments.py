"""Arguments that contradict each other are refused by name, and every back end says why it steps aside."""

import inspect

import jax.numpy as jnp
import pytest

from pallas_kernels.paged_attention.api import lane_width, paged_attention
from pallas_kernels.paged_attention.arg_specs import WORKLOADS, Workload, build
from pallas_kernels.paged_attention.config import BlockSizes, default_block_sizes

TINY = Workload("tiny", (1, 3), (5, 7), num_heads=4, num_kv_heads=2, head_dim=8, page_size=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"write": False}, "write=False needs k and v to be None"),
        ({"k": None}, "write=True needs k and v to be arrays"),
        ({"window": 0}, "window=0 must be at least 1"),
        ({"softcap": 0.0}, "softcap=0.0 must be positive"),
        ({"q": jnp.zeros((4, 3, 8))}, "q has 3 heads"),
        ({"q": jnp.zeros((4, 4, 80))}, "head dim 80 needs 256"),
        ({"v": jnp.zeros((4, 1, 8))}, "v has shape"),
        ({"q": jnp.zeros((5, 4, 8)), "k": None, "v": None, "write": False}, "meta is for 4 tokens, q has 5"),
        ({"backend": "cuda"}, "backend='cuda' is unknown; use one of auto, xla, reference"),
        ({"block": BlockSizes(positions=2)}, "positions=2 must be a multiple of the page size 4"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_contradiction_is_an_error_that_names_it(change, message):
    as_users_call_it = inspect.unwrap(paged_attention)  # the suite's shape checks would be first
    with pytest.raises(ValueError, match=message):
        as_users_call_it(**build(TINY) | change)


def test_scaled_pools_are_refused_with_every_reason():
    scales = jnp.ones((2, 2))
    with pytest.raises(NotImplementedError, match="xla: 8-bit pools and their scales are not served"):
        paged_attention(**build(TINY), k_scale=scales, v_scale=scales)
    with pytest.raises(NotImplementedError, match="reference: it has no blocks"):
        paged_attention(**build(TINY), backend="reference", block=BlockSizes())


@pytest.mark.parametrize("name", ["positions", "rows", "queries"])
@pytest.mark.parametrize("size", [0, 3, -8])
def test_block_sizes_are_powers_of_two(name, size):
    with pytest.raises(ValueError, match=f"{name}={size}"):
        BlockSizes(**{name: size})


def test_default_blocks_hold_whole_pages_and_stay_small():
    for page_size in (1, 16, 64, 256):
        for num_kv_heads, head_dim in ((3, 64), (1, 256), (32, 128)):
            sizes = default_block_sizes(page_size, num_kv_heads, head_dim)
            assert sizes.pages(page_size) * page_size == sizes.positions
            if sizes.rows > 2:
                assert sizes.rows * sizes.positions * num_kv_heads * 2 * head_dim * 4 <= 2**22


def test_lanes_are_keys_and_values_in_whole_registers():
    assert [lane_width(h) for h in (64, 80, 96, 128, 256)] == [128, 256, 256, 256, 512]


def test_workloads_have_names_of_their_own():
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
