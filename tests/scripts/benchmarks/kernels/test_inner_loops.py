"""The cost of a block of positions is the sum over the loops that process it."""

import pytest

from scripts.benchmarks.kernels.inner_loops import find_inner
from scripts.benchmarks.kernels.tpu_schedule import Kernel, Loop


def loop(path: str, bundles: int, mxu: int = 0, eup: int = 0, fetches: int = 0) -> Loop:
    dmas = {"hbm_to_vmem": (fetches, fetches * 2**18)} if fetches else {}
    return Loop(path, bundles, 0, 0, {"MXU": mxu, "EUP": eup}, dmas)


def kernel(name: str, scratch: tuple[tuple[int, ...], ...], *loops: Loop) -> Kernel:
    return Kernel(name, loops, {"MXU": 2, "EUP": 1}, 0, 0, scratch)


def test_a_block_of_one_pass_with_a_loop_of_dmas():
    """8 pages of 64 in steps of 4: the fetching loop runs twice."""
    scratch = ((2, 8, 512, 256), (8, 8, 128))
    loops = (loop("1", 200), loop("1.1", 760, mxu=256, eup=40), loop("1.1.1", 57, fetches=4), loop("1.2", 437, mxu=128))
    inner = find_inner(kernel("paged_attention_decode", scratch, *loops), 8, 256)
    assert (inner.positions, inner.lines, inner.passes) == (512, 8, 1)
    assert inner.bundles(64) == inner.block_bundles(64) == 760 + 2 * 57
    assert inner.bundles(128) == 760 + 57
    assert inner.row_bundles == 200


def test_a_block_of_several_passes_over_heads():
    """256 queries × 512 positions × 2 of 8 heads a pass: 256 registers of scores, 64 of rescaling factors."""
    scratch = ((2, 8, 256, 128), (2, 8, 512, 256), (8, 256, 128))
    loops = (loop("1", 400), loop("1.1", 100), loop("1.1.1", 50, fetches=8), loop("1.1.2", 1700, mxu=844, eup=320))
    inner = find_inner(kernel("paged_attention_chunks", scratch, *loops), 8, 256)
    assert inner.passes == pytest.approx(4)
    assert inner.bundles(64) == pytest.approx(4 * 1700 + 100 + 50)
    assert inner.row_bundles == 400


def test_a_block_fetched_whole_and_computed_in_halves():
    """RPA v3: its name contains the sizes, and it issues its DMAs in the block loop."""
    scratch = ((2, 1024, 9, 2, 128), (8, 1024, 128))
    loops = (loop("1", 4000), loop("1.1", 300, fetches=16), loop("1.1.1", 15000, mxu=16000, eup=5120))
    inner = find_inner(kernel("RPAm-p_64-bq_256_128-bkv_1024_512", scratch, *loops), 8, 256)
    assert (inner.positions, inner.step, inner.passes) == (1024, 512, pytest.approx(2))
    assert inner.bundles(64) == pytest.approx((2 * 15000 + 300) / 2)


def test_fewer_heads_are_scaled_to_eight():
    scratch = ((2, 2, 2048, 256), (2, 8, 128))
    loops = (loop("1", 10), loop("1.1", 1000, mxu=1, fetches=32))
    inner = find_inner(kernel("paged_attention_decode", scratch, *loops), 2, 256)
    assert inner.bundles(64) == 1000 / (2048 / 512) * (8 / 2)


def test_a_kernel_that_fetches_no_pages_is_no_attention():
    with pytest.raises(ValueError, match="copy: no loop fetches pages"):
        find_inner(kernel("copy", ((2, 2, 2048, 256), (2, 8, 128)), loop("1", 10, mxu=1)), 2, 256)
