"""Instructions of a compiled program get the scopes of their source code."""

import re
from pathlib import Path

from jaxserve.bench.profile.scopes import SCOPES, read_scopes, scope_of

TEXT = """HloModule jit_step, is_scheduled=true

%fused_computation.1 (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %broadcast.1 = f32[8]{0} broadcast(%p), dimensions={0}
}

%body.2 (a: (s32[], f32[8])) -> (s32[], f32[8]) {
  %a = (s32[], f32[8]{0}) parameter(0)
  %copy.4 = f32[8]{0:T(8,128)} copy(%a)
  %fusion.3 = f32[8]{0} fusion(%copy.4), kind=kLoop, calls=%fused_computation.1, metadata={op_name="jit(step)/layers/while/body/mlp/mul" stack_frame_id=3}
  ROOT %tuple.2 = (s32[], f32[8]{0}) tuple(%a, %fusion.3)
}

%branch.1 (b: f32[8]) -> f32[8] {
  ROOT %copy.9 = f32[8]{0} copy(%b)
}

ENTRY %main.9 (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0), metadata={op_name="x"}
  %while.1 = (s32[], f32[8]{0}) while(%x), condition=%cond.2, body=%body.2, metadata={op_name="jit(step)/layers/while"}
  %conditional.1 = f32[8]{0} conditional(%x, %x), branch_computations={%branch.1, %branch.2}, metadata={op_name="jit(step)/sample/cond"}
  %scatter.1 = f32[8]{0} scatter(%x), to_apply=%add.1, metadata={op_name="jit(step)/scatter"}
  ROOT %copy.7 = f32[8]{0} copy(%scatter.1)
}
"""  # noqa: E501


def test_an_instruction_has_the_scopes_of_its_name():
    program = read_scopes(TEXT)
    assert program.module == "jit_step"
    assert program.scopes["fusion.3"] == "layers/mlp"
    assert program.scopes["while.1"] == "layers"
    assert program.scopes["scatter.1"] == ""


def test_one_without_a_name_belongs_to_whoever_called_its_computation():
    scopes = read_scopes(TEXT).scopes
    assert scopes["copy.4"] == "layers"
    assert scopes["broadcast.1"] == "layers/mlp"
    assert scopes["copy.9"] == "sample"
    assert scopes["copy.7"] == ""


def test_loops_and_branches_are_containers():
    assert read_scopes(TEXT).containers == {"while.1", "conditional.1"}


def test_a_primitive_that_is_named_like_a_scope_is_none():
    assert scope_of("jit(step)/layers/while/body/mlp/mul") == "layers/mlp"
    assert scope_of("jit(step)/sample") == ""


def test_every_scope_of_the_code_is_listed():
    root = Path(__file__).parents[4] / "jaxserve"
    sources = [path.read_text() for part in ("models", "runner", "sampling") for path in (root / part).rglob("*.py")]
    named = {name for text in sources for name in re.findall(r'named_scope\("(\w+)"\)', text)}
    norms = {name for text in sources for name in re.findall(r'norm(?:\(|, )(?:\w+, )?"(\w+)"', text)}
    assert named | norms == SCOPES
    assert {"mlp", "draw"} <= named
    assert {"attn_norm", "final_norm", "q_norm"} <= norms
