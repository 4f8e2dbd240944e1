from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.model_settings import Settings
from jaxserve.models.packing import DENSE, Packing
from jaxserve.runner.programs import engine_shapes
from jaxserve.runner.programs import weight_copies as weight_copies_module
from jaxserve.runner.programs.hlo import read_hlo
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.programs.weight_copies import weight_copies
from jaxserve.runner.step.step_settings import StepSettings
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.matmul.cpu_products import AMX, ZEN4
from pallas_kernels.quant_matmul import block_rows

MODEL = replace(SHAPES["smollm2-135m"], layer_stacks=(0,) * 3)
BUCKET = Bucket(8, 8, 4)


BLOCKS = Packing(layers=GGML_FORMS["Q4_1"], ends=GGML_FORMS["Q8_0"])


def copies(packing: Packing = DENSE) -> list[str]:
    """What the decode step of a model on this machine's CPU copies."""
    settings = Settings(MODEL, make_mesh(1), jnp.dtype("bfloat16"), 32, packing=packing)
    programs = Programs(StepSettings(settings, max_logprobs=0), 40, 8)
    text = programs.step(BUCKET).compile().as_text()
    return weight_copies(read_hlo(text), programs.params, BUCKET.num_tokens, "cpu")


def test_no_weight_is_copied_on_cpu():
    assert copies() == []


def test_the_control_stacks_are_copied_on_cpu(monkeypatch):
    monkeypatch.setattr(engine_shapes, "has_tuples_on", lambda mesh: False)
    found = copies()
    assert len(found) == 4, "qkv, o, gate_up and down"
    assert all("dynamic_slice" in line for line in found)


@pytest.fixture(params=[AMX, replace(ZEN4, tile_bytes=AMX.tile_bytes)], ids=lambda rule: rule.name)
def small_tiles(monkeypatch, request):
    """In bfloat16, and in float32."""
    for user in (block_rows, weight_copies_module):
        monkeypatch.setattr(user, "cpu_rule", lambda: request.param)


@pytest.mark.thinned(1)
@pytest.mark.usefixtures("small_tiles")
def test_no_packed_blocks_are_decoded_at_once():
    assert copies(BLOCKS) == []


@pytest.mark.thinned(1)
@pytest.mark.usefixtures("small_tiles")
def test_the_control_whole_matrices_are_decoded(monkeypatch):
    monkeypatch.setattr(block_rows, "_tile_rows", lambda num_rows, most: num_rows)
    assert copies(BLOCKS)


HLO = """
ENTRY %main (p: bf16[3,512,256]) -> bf16[512,256] {
  %p = bf16[3,512,256]{2,1,0} parameter(0)
  %fast = bf16[512,256]{1,0:T(8,128)(2,1)S(1)} fusion(%p), kind=kLoop, calls=%inner
  %start = (bf16[512,256]{1,0}, bf16[512,256]{1,0:S(1)}) copy-start(%p)
  ROOT %copy = bf16[512,256]{1,0:T(8,128)(2,1)} RESULT
}
"""


@pytest.mark.parametrize(
    ("result", "num_copies"),
    [("copy(%p)", 1), ("fusion(%p), kind=kLoop, calls=%inner", 1), ("get-tuple-element(%p)", 0)],
)
def test_a_copy_in_the_device_s_memory_counts(result, num_copies):
    params = {"w": jax.ShapeDtypeStruct((3, 512, 256), jnp.bfloat16)}
    program = read_hlo(HLO.replace("RESULT", result))
    assert len(weight_copies(program, params, 8, "tpu")) == num_copies
    assert weight_copies(program, params, 512, "tpu") == [], "activations of 512 tokens"


GATE_UP, QKV, PLAIN, TAPS = (3, 2, 512, 256), (3, 8, 80, 256), (32, 512, 256), (1536, 512)


def made(shape, dtype, array, num_tokens):
    """Whether an array of this type is a copy of a weight."""
    text = HLO.replace("RESULT", "copy(%p)").replace("%copy = bf16[512,256]{1,0:T(8,128)(2,1)}", f"%copy = {array}{{}}")
    assert array in text
    return bool(weight_copies(read_hlo(text), {"w": jax.ShapeDtypeStruct(shape, dtype)}, num_tokens, "tpu"))


@pytest.mark.parametrize(
    ("shape", "array", "num_tokens"),
    [
        (GATE_UP, "bf16[3,2,512,256]", 8),
        (GATE_UP, "bf16[3,1024,256]", 8),
        (GATE_UP, "bf16[1,1024,256]", 8),
        (GATE_UP, "bf16[1,2,512,256]", 8),
        (GATE_UP, "bf16[2,512,256]", 2),
        (GATE_UP, "bf16[512,256]", 8),
        (GATE_UP, "bf16[256,1024]", 8),
        (GATE_UP, "bf16[256,2,512]", 8),
        (QKV, "bf16[1,640,256]", 8),
        (QKV, "bf16[8,80,256]", 8),
        (PLAIN, "bf16[32,512,256]", 32),
        (PLAIN, "bf16[16384,256]", 32),
        (PLAIN, "bf16[1,512,256]", 32),
        (TAPS, "bf16[3,512,512]", 8),
    ],
)
def test_a_copy_may_have_other_axes(shape, array, num_tokens):
    assert made(shape, jnp.bfloat16, array, num_tokens)


@pytest.mark.parametrize(
    ("shape", "array", "num_tokens"),
    [
        (GATE_UP, "bf16[512,2,512]", 512),
        (GATE_UP, "bf16[512,256]", 512),
        (GATE_UP, "bf16[1,512,256]", 512),
        (GATE_UP, "f32[512,256]", 8),
        (GATE_UP, "bf16[1024,128]", 8),
        (GATE_UP, "bf16[511,256]", 8),
        (QKV, "bf16[256,8,80]", 256),
        (TAPS, "bf16[3,512,512]", 512),
    ],
    ids=[
        *("gate and up", "inputs", "inputs, one part", "another type", "another axis", "another size", "several axes"),
        "inputs of three layers",
    ],
)
def test_activations_and_others_are_none(shape, array, num_tokens):
    assert not made(shape, jnp.bfloat16, array, num_tokens)


@pytest.mark.parametrize("array", ["s8[512,256]", "bf16[512,256]", "f32[1,512,256]"])
def test_codes_may_not_be_widened_in_memory(array):
    assert made((3, 512, 256), jnp.int8, array, 8)


def test_orders_and_lists_of_tokens_are_no_matrices():
    params = {
        "order": jax.ShapeDtypeStruct((32, 14336), jnp.int32),
        "tokens": jax.ShapeDtypeStruct((2**17,), jnp.int32),
    }
    assert weight_copies(read_hlo(HLO.replace("RESULT", "copy(%p)")), params, 8, "tpu") == []
