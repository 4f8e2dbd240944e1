"""A schedule dump is parsed into nested loops, their slots and DMAs, and the memory of the kernel."""

from pathlib import Path

import pytest

from scripts.benchmarks.kernels.dump_schedule import describe
from scripts.benchmarks.kernels.tpu_schedule import read_kernels

BUNDLES = """\
= control target key start
LH: loop header
LB: loop body
= control target key end

     0   :  { %s1 = smov 0 }
   0x1 LB: > { %1 = dma.hbm_to_vmem [thread:$0] /*hbm=*/%s1, /*size_in_granules=*/16, /*vmem=*/ } /* Start region 7 */
   0x2   : > { %2 = sbr.rel (%p1) target = $region9 }
   0x3   : > { %3 = dma.hbm_to_vmem (%p2), /*hbm=*/%s1, /*size_in_granules=*/%s5, /*vmem=*/%s2 }
   0x4   :  {}
   0x5 LB: >> { %4 = vmatmul.bf16.gmra.mxu0 %v1 } /* Start region 8 */
   0x6   : >> { %5 = sbr.rel (!%p1) target = $region8 }
   0x7   :  {}
   0x8 LB: >> { %6 = vmatmul.bf16.gmra.mxu0 %v1 }
   0x9 PF: > { %7 = smov 1 } /* Start/End empty region 9 */
   0xa LB: > { %8 = smov 2 }
   0xb   :  { %9 = shalt }
"""
UTILIZATION = """\
== CAPACTIY:
MXU, VALU
    2     4
== UTILIZATION:
0 1
0 0
0 0
0 0
0 0
2 4
1 0
0 0
2 1
0 1
0 0
0 0
"""
ALLOCATIONS = "\n".join(
    f"  #allocation{i} [shape = '{shape}', space={space}, size = {size}, offset = {offset}, {kind}, tag = '{tag}']"
    for i, (shape, space, size, offset, kind, tag) in enumerate(
        [
            ("bf16[2,8,512,256]{3,2,1,0}", "vmem", "0x400000", "0", "scoped", "scratch operand"),
            ("f32[8,8,128]{2,1,0}", "vmem", "0x8000", "0x400000", "scoped", "scratch operand"),
            ("u8[512]{0}", "smem", "0x200", "0x200", "scoped", "prefetched SMEM operand 1"),
            ("u32[]", "smem", "0x4", "0x9000", "fixed_abs", "smem constant"),
        ]
    )
)


@pytest.fixture
def dumped(tmp_path: Path):
    for stage, text in {
        "66-post-delay-converter": ALLOCATIONS,
        "70-final_hlo-static-per-bundle-utilization": UTILIZATION,
        "71-schedule-analysis_final_bundles": '%attend = custom_call_target="tpu_custom_call"',
        "72-final_bundles": BUNDLES,
    }.items():
        (tmp_path / f"1700-attend.1-{stage}.txt").write_text(text)
        (tmp_path / f"1800-TLP-{stage}.txt").write_text(text)
    (tmp_path / "1600-copy.1-71-schedule-analysis_final_bundles.txt").write_text("no kernel")
    (tmp_path / "1600-copy.1-72-final_bundles.txt").write_text("")
    return tmp_path


def test_kernels_are_told_from_what_xla_made(dumped):
    assert [kernel.name for kernel in read_kernels(dumped)] == ["attend"]


def test_each_loop_holds_its_own_bundles(dumped):
    (kernel,) = read_kernels(dumped)
    assert {loop.path: (loop.bundles, loop.empty) for loop in kernel.loops} == {
        "": (2, 0),
        "1": (4, 1),
        "1.1": (2, 1),
        "1.2": (1, 0),
        "2": (1, 0),
    }


def test_slots_are_those_of_the_loops_bundles(dumped):
    (kernel,) = read_kernels(dumped)
    slots = {loop.path: loop.slots for loop in kernel.loops}
    assert slots["1.1"] == {"MXU": 3, "VALU": 4}
    assert slots["1.2"] == {"MXU": 2, "VALU": 1}
    assert kernel.capacity == {"MXU": 2, "VALU": 4}
    assert kernel.occupancy(kernel.loops[2], "MXU") == 3 / 4


def test_dmas_are_counted_with_their_bytes_where_they_are_static(dumped):
    (kernel,) = read_kernels(dumped)
    assert {loop.path: loop.dmas for loop in kernel.loops if loop.dmas} == {"1": {"hbm_to_vmem": (2, 16 * 32)}}


def test_what_a_branch_of_the_loop_can_skip_is_counted(dumped):
    (kernel,) = read_kernels(dumped)
    assert [loop.branched_over for loop in kernel.loops] == [0, 1, 0, 0, 0]


def test_memory_ends_with_the_last_buffer(dumped):
    (kernel,) = read_kernels(dumped)
    assert (kernel.vmem_bytes, kernel.smem_bytes) == (0x408000, 0x400)
    assert kernel.scratch == ((2, 8, 512, 256), (8, 8, 128))


def test_a_dump_with_a_piece_missing_is_refused(dumped):
    file = dumped / "1700-attend.1-70-final_hlo-static-per-bundle-utilization.txt"
    file.write_text(UTILIZATION.removesuffix("0 0\n"))
    with pytest.raises(ValueError, match="12 bundles, 11 rows"):
        read_kernels(dumped)


def test_the_table_shows_every_loop(dumped):
    (kernel,) = read_kernels(dumped)
    lines = describe(kernel).splitlines()
    assert lines[0] == "attend: VMEM 4,227,072 B, SMEM 1,024 B"
    assert [line.split()[0] for line in lines[2:]] == ["none", "1", "1.1", "1.2", "2"]
    assert "2 hbm_to_vmem of 512 B" in lines[3]
