"""The counts of adapters' kernels: bytes are those of the layout, and loops count with their passes."""

from pallas_kernels.lora_matmul.adapter_layout import RANKS
from scripts.benchmarks.kernels.adapter_schedule import Op, group_bundles, layout, ops_of
from scripts.benchmarks.kernels.tpu_schedule import Kernel, Loop


def test_both_kernels_read_the_rows_that_the_layout_has():
    for site in layout(1).sites.values():
        shrink, expand = ops_of(site)
        last = site.parts[-1]
        assert shrink.num_rows == site.parts[0].first_b - site.parts[0].first_a
        end = last.first_b + -(-last.num_outputs // site.width) * RANKS
        assert expand.num_rows == end - site.parts[0].first_b


def loop(path: str, bundles: int, mxu: int = 0) -> Loop:
    return Loop(path, bundles, empty=0, branched_over=0, slots={"MXU": mxu, "SALU": 1}, dmas={})


def test_a_group_has_all_passes_of_its_loops():
    loops = (loop("", 1000), loop("1", 100), loop("2", 7), loop("2.1", 20), loop("2.2", 10), loop("2.3", 50, mxu=9))
    kernel = Kernel("lora_shrink_o", (*loops, loop("2.4", 5)), {}, 0, 0, ())
    op = Op("lora_shrink_o", num_rows=128, blocks_of_part=16, other_bytes=0)
    # Sixteen column blocks are two passes of four pairs; copies are issued and awaited for eight items.
    assert group_bundles(kernel, op, num_items=8) == 7 + 8 * (20 + 10) + 2 * 50 + 8 * 5
