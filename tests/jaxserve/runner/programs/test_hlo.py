"""Collectives are read from a compiled program's text, multiplied by the iterations of its loops."""

import jax
import jax.numpy as jnp
import pytest

from jaxserve.core.hardware.mesh import make_mesh, replicated, sharding
from jaxserve.runner.programs.collectives import Collective, collectives
from jaxserve.runner.programs.hlo import read_hlo, type_bytes

TEXT = """HloModule step, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%body (state: (s32[], bf16[8,16])) -> (s32[], bf16[8,16]) {
  %state = (s32[]{:T(128)}, bf16[8,16]{1,0:T(8,128)(2,1)S(1)}) parameter(0)
  %start = ((f32[8,16]{1,0}), f32[8,16]{1,0}) all-reduce-start(%state), to_apply=%add
  ROOT %done = f32[8,16]{1,0:T(8,128)(2,1)} all-reduce-done(%start), metadata={op_name="step/layers/o"}
}

%less (state: (s32[], bf16[8,16])) -> pred[] {
  %limit = s32[]{:T(128)} constant(32), metadata={op_name="step/layers"}
  %state.1 = (s32[]{:T(128)}, /*index=1*/bf16[8,16]{1,0}) parameter(0)
  ROOT %lt = pred[]{:T(512)} compare(%state.1, %limit), direction=LT
}

%until (state: (s32[], bf16[8,16])) -> pred[] {
  %state.2 = (s32[], bf16[8,16]{1,0}) parameter(0)
  ROOT %is_over = pred[] custom-call(%state.2)
}

%small (x.1: s32[4]) -> s32[16] {
  ROOT %gathered = s32[16]{0} all-gather(%x.1), dimensions={0}
}

%large (x.2: s32[4]) -> s32[16] {
  %one = s32[16]{0} all-gather(%x.2), dimensions={0}
  ROOT %two = s32[16]{0} all-gather(%one), dimensions={0}
}

%aside (x.3: f32[16]) -> f32[4] {
  ROOT %part = f32[4]{0} reduce-scatter(%x.3), dimensions={0}, to_apply=%add
}

ENTRY %main (a: bf16[8,16]) -> bf16[8,16] {
  %a = bf16[8,16]{1,0} parameter(0)
  %scan = (s32[], bf16[8,16]{1,0}) while(%a), condition=%less, body=%body
  %known = (s32[], bf16[8,16]{1,0}) while(%a), condition=%until, body=%body, config={"known_trip_count":{"n":"5"}}
  %open = (s32[], bf16[8,16]{1,0}) while(%a), condition=%until, body=%body
  %either = s32[16]{0} conditional(%a), branch_computations={%small, %large}
  %exchange = (bf16[2,4]{1,0}, f8e4m3fn[6]{0}, u32[]{:S(2)}) all-to-all(%a, %a)
  %begun = ((f32[16]{0}), f32[4]{0}, u32[]{:S(8)}) call-start(%a), to_apply=%aside
  %ended = f32[4]{0} call-done(%begun), to_apply=%aside
  ROOT %out = bf16[8,16]{1,0} bitcast(%open)
}
"""


@pytest.mark.parametrize(
    ("result", "num_bytes"),
    [
        ("bf16[64,4096]{1,0:T(8,128)(2,1)S(1)}", 2 * 64 * 4096),
        ("pred[]", 1),
        ("(f32[2,3]{1,0}, /*index=1*/s32[], u4[16])", 24 + 4 + 8),
        ("f8e4m3fn[5]{0}", 5),
        ("token[]", 0),
    ],
)
def test_the_size_of_a_type_is_that_of_its_arrays(result, num_bytes):
    assert type_bytes(result) == num_bytes


def test_loops_turn_as_often_as_their_text_says():
    hlo = read_hlo(TEXT)
    loops = {line.name: hlo.num_iterations(line) for line in hlo.instructions if line.opcode == "while"}
    assert loops == {"scan": 32, "known": 5, "open": None}


def test_exchanges_count_once_a_turn_the_larger_branch_alone_and_calls_where_they_start():
    in_loops = 32 + 5 + 1
    assert collectives(read_hlo(TEXT)) == (
        Collective("all-reduce", in_loops, in_loops * 4 * 8 * 16),
        Collective("all-gather", 2, 2 * 4 * 16),
        Collective("all-to-all", 1, 2 * 8 + 6 + 4),
        Collective("reduce-scatter", 1, 4 * 4),
    )


def test_a_scan_that_is_compiled_for_four_devices_exchanges_in_each_turn():
    mesh = make_mesh(4)
    weights = jax.ShapeDtypeStruct((7, 16, 64), jnp.float32, sharding=sharding(mesh, None, None, "mlp"))
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=replicated(mesh))

    def layer(x, w):
        y = jnp.einsum("tf,df->td", jnp.einsum("td,df->tf", x, w), w)
        return jax.lax.with_sharding_constraint(y, replicated(mesh)), None

    with jax.set_mesh(mesh):
        text = jax.jit(lambda x, w: jax.lax.scan(layer, x, w)[0]).lower(x, weights).compile().as_text()
    assert collectives(read_hlo(text)) == (Collective("all-reduce", 7, 7 * 4 * 8 * 16),)
