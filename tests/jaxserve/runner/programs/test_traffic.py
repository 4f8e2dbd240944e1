"""Bytes that programs read and write: of programs compiled here, and of what other compilers write, line by line."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxserve.runner.programs.hlo import read_hlo
from jaxserve.runner.programs.traffic import memory_traffic

LAYERS, ROWS, WIDTH = 6, 8, 512
MATRIX_BYTES, ROWS_BYTES = 4 * WIDTH * WIDTH, 4 * ROWS * WIDTH


def traffic(function, *shapes) -> int:
    structs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return memory_traffic(read_hlo(jax.jit(function).lower(*structs).compile().as_text()))


def test_a_product_reads_both_operands_and_writes_its_result():
    assert traffic(jnp.dot, (ROWS, WIDTH), (WIDTH, WIDTH)) == MATRIX_BYTES + 2 * ROWS_BYTES


def test_a_row_gathered_is_not_the_table():
    found = traffic(lambda table: 2 * lax.dynamic_slice_in_dim(table, 3, ROWS), (10_000, WIDTH))
    assert 2 * ROWS_BYTES <= found < 3 * ROWS_BYTES


def test_a_row_replaced_in_place_is_not_the_table():
    def replace(table, row):
        return lax.fori_loop(0, LAYERS, lambda i, table: lax.dynamic_update_slice(table, row + i, (i, 0)), table)

    copied_once = 2 * 4 * 10_000 * WIDTH  # the argument is not donated
    found = traffic(replace, (10_000, WIDTH), (1, WIDTH))
    assert found < copied_once + 10 * LAYERS * 4 * WIDTH


@pytest.mark.parametrize("is_copied", [False, True], ids=["read once", "the control, a copy"])
def test_a_loop_counts_as_often_as_it_turns(is_copied):
    """On CPU each layer's part of a stack is copied before it is multiplied; apart, the layers are read in place."""

    def stacked(x, matrices):
        return lax.scan(lambda x, matrix: (jnp.tanh(x @ matrix), None), x, matrices)[0]

    def apart(x, *matrices):
        def layer(i, x):
            return lax.switch(i, [lambda x, matrix=matrix: x @ matrix for matrix in matrices], x)

        return lax.fori_loop(0, LAYERS, layer, x)

    if is_copied:
        found = traffic(stacked, (ROWS, WIDTH), (LAYERS, WIDTH, WIDTH))
    else:
        found = traffic(apart, (ROWS, WIDTH), *[(WIDTH, WIDTH)] * LAYERS)
    num_reads = found / (LAYERS * MATRIX_BYTES)
    assert 3 < num_reads < 3.2 if is_copied else 1 < num_reads < 1.2


HLO = """
%inner (p: bf16[4,256,64], i: s32[]) -> bf16[256,64] {
  %p = bf16[4,256,64]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = bf16[1,256,64]{2,1,0} dynamic-slice(%p, %i, %zero, %zero), dynamic_slice_sizes={1,256,64}
  ROOT %flat = bf16[256,64]{1,0} bitcast(%slice)
}

%product (a: bf16[4,256,64], j: s32[], x: bf16[8,64]) -> (f32[8,256], s8[1000000]) {
  %a = bf16[4,256,64]{2,1,0} parameter(0)
  %j = s32[] parameter(1)
  %x = bf16[8,64]{1,0} parameter(2)
  %matrix = bf16[256,64]{1,0} fusion(%a, %j), kind=kLoop, calls=%inner
  ROOT %gemm = (f32[8,256]{1,0}, s8[1000000]{0}) custom-call(%x, %matrix), custom_call_target="gemm"
}

%option (t: f32[8,256]) -> f32[8,256] {
  %t = f32[8,256]{1,0} parameter(0)
  ROOT %twice = f32[8,256]{1,0} add(%t, %t)
}

%nothing (u: f32[8,256]) -> f32[8,256] {
  ROOT %u = f32[8,256]{1,0} parameter(0)
}

%sampling (v: f32[8,256]) -> f32[8,256] {
  %v = f32[8,256]{1,0} parameter(0)
  %is_asked = pred[] constant(false)
  %head = f32[8,256]{1,0} negate(%v)
  ROOT %asked = f32[8,256] conditional(%is_asked, %head, %head), true_computation=%option, false_computation=%nothing
}

ENTRY %main (w: bf16[4,256,64], k: s32[], y: bf16[8,64], pool: s8[9,9]) -> f32[8,256] {
  %w = bf16[4,256,64]{2,1,0} parameter(0)
  %k = s32[] parameter(1)
  %y = bf16[8,64]{1,0} parameter(2)
  %pool = s8[9,9]{1,0} parameter(3)
  %flat = s8[81]{0} bitcast(%pool)
  %kept = bf16[8,64]{1,0:T(8,128)(2,1)S(1)} copy(%y)
  %both = (f32[8,256]{1,0}, s8[1000000]{0}) fusion(%w, %k, %kept), kind=kCustom, calls=%product
  %z = f32[8,256]{1,0} get-tuple-element(%both), index=0
  %attention = f32[8,256]{1,0:S(1)} custom-call(%flat, %z), custom_call_target="kernel"
  %is_sampled = pred[] constant(true)
  ROOT %drawn = f32[8,256]{1,0} conditional(%is_sampled, %z, %z), true_computation=%sampling, false_computation=%nothing
}
"""


ASYNC_HLO = """
%inner (p: f32[32,4096], i: s32[]) -> f32[1,4096] {
  %p = f32[32,4096]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %slice = f32[1,4096]{1,0} dynamic-slice(%p, %i, %zero), dynamic_slice_sizes={1,4096}
}

ENTRY %main (norms: f32[32,4096], layer: s32[]) -> f32[1,4096] {
  %norms = f32[32,4096]{1,0} parameter(0)
  %layer = s32[] parameter(1)
  %begun = ((f32[32,4096]{1,0}, s32[]), f32[1,4096]{1,0}, u32[]) fusion-start(%norms, %layer), kind=kLoop, calls=%inner
  ROOT %norm = f32[1,4096]{1,0} fusion-done(%begun)
}
"""
KERNEL_HLO = """
ENTRY %main (x: bf16[8,64], stack: bf16[4,1,256,64], layer: s32[1]) -> bf16[8,256] {
  %x = bf16[8,64]{1,0} parameter(0)
  %stack = bf16[4,1,256,64]{3,2,1,0} parameter(1)
  %layer = s32[1]{0} parameter(2)
  ROOT %y = bf16[8,256]{1,0} custom-call(%x, %stack, %layer), metadata={op_name="layers/qkv/matmul_tiles/mpmd_map"}
}
"""


def test_a_kernel_that_reads_a_layer_in_its_stack_reads_no_other():
    found = memory_traffic(read_hlo(KERNEL_HLO))
    assert found == 2 * (8 * 64 + 256 * 64 + 8 * 256) + 4
    assert memory_traffic(read_hlo(KERNEL_HLO.replace("matmul_tiles", "block_tiles"))) == found
    other = memory_traffic(read_hlo(KERNEL_HLO.replace("matmul_tiles", "gemm")))
    assert other == found + 3 * 2 * 256 * 64, "the control: another kernel may read all"


def test_a_kernel_with_several_tiles_of_rows_reads_the_layer_for_each():
    several = KERNEL_HLO.replace("matmul_tiles", "multiply_blocks_5_times")
    assert memory_traffic(read_hlo(several)) == memory_traffic(read_hlo(KERNEL_HLO)) + 4 * 2 * 256 * 64


STARTED_HLO = """
%aside (u: f32[16,64]) -> f32[4,64] {
  %u = f32[16,64]{1,0} parameter(0)
  ROOT %cut = f32[4,64]{1,0} slice(%u), slice={[0:4], [0:64]}
}

ENTRY %main (a: f32[16,64]) -> f32[4,64] {
  %a = f32[16,64]{1,0} parameter(0)
  %begun = STARTED
  ROOT %end = f32[4,64]{1,0} DONE(%begun)
}
"""
OPERAND, PART, ROW = "f32[16,64]{1,0}", "f32[4,64]{1,0}", 4 * 64
SLICE = "slice={[0:4], [0:64]}"


@pytest.mark.parametrize(
    ("opcode", "result", "rest", "num_rows"),
    [
        ("call", f"(({OPERAND}), {PART}, u32[]{{:S(8)}})", "to_apply=%aside", 4 + 4),
        ("async", f"(({OPERAND}), {PART}, u32[]{{:S(8)}})", "calls=%aside", 4 + 4),
        ("slice", f"(({OPERAND}), {PART}, u32[])", SLICE, 4 + 4),
        ("all-gather", f"({OPERAND}, f32[64,64]{{1,0}})", "dimensions={0}", 16 + 64),
        ("all-gather", f"(({OPERAND}, {PART}), (f32[64,64]{{1,0}}, {OPERAND}))", "dimensions={0}", 16 + 64 + 16),
        ("copy", f"(f32[16,64]{{0,1}}, {OPERAND}, u32[])", "", 16 + 16),
        ("copy", f"(f32[16,64]{{0,1:S(1)}}, {OPERAND}, u32[])", "", 16),
        ("all-reduce", OPERAND, "to_apply=%aside", 16 + 16),
    ],
)
def test_what_runs_meanwhile_counts_where_it_starts(opcode, result, rest, num_rows):
    text = STARTED_HLO.replace("STARTED", f"{result} {opcode}-start(%a), {rest}").replace("DONE", f"{opcode}-done")
    assert memory_traffic(read_hlo(text)) == num_rows * ROW


TABLES_HLO = """
ENTRY %main (index: s32[8], codes: u8[9600,64], scales: u16[9600,4]) -> (s32[8,64], s32[8,4]) {
  %index = s32[8]{0} parameter(0)
  %codes = u8[9600,64]{1,0} parameter(1)
  %scales = u16[9600,4]{1,0} parameter(2)
  %both = (s32[8,64]{1,0}, s32[8,4]{1,0}) custom-call(%index, %codes, %scales), metadata={op_name="e/table_rows/call"}
  %rows = s32[8,64]{1,0} get-tuple-element(%both), index=0
  %their_scales = s32[8,4]{1,0} get-tuple-element(%both), index=1
  ROOT %taken = (s32[8,64]{1,0}, s32[8,4]{1,0}) tuple(%rows, %their_scales)
}
"""


def test_a_kernel_that_takes_rows_reads_the_tiles_in_which_they_lie():
    tiles, rows = 8 * 32 * (64 + 2 * 4), 4 * 8 * (64 + 4)
    assert memory_traffic(read_hlo(TABLES_HLO)) == 4 * 8 + tiles + rows


def test_what_the_compilers_for_accelerators_write():
    y, matrix, z, index, pool = 2 * 8 * 64, 2 * 256 * 64, 4 * 8 * 256, 4, 81
    product = matrix + index + z  # of the stack one layer, of the result no workspace, nothing of fast memory
    attention, head = pool + z, 2 * z
    assert memory_traffic(read_hlo(HLO)) == y + product + attention + head
    assert memory_traffic(read_hlo(HLO), {"s8[9,9]"}) == y + product + z + head


def test_a_fusion_that_runs_while_others_do_counts_like_any_other():
    program = read_hlo(ASYNC_HLO)
    assert memory_traffic(program) == 2 * 4 * 4096 + 4
    assert "slice" not in {line.name for line in program.in_memory}
