"""Layers and head of Llama 3 8B in packed blocks, compiled ahead of time for TPUs: the blocks are read once, in place.
`scripts/prove aot` compiles more forms, for more TPUs, and whole steps, for Hopper, too."""

from contextlib import nullcontext

import pytest
from jax.sharding import Mesh

from jaxserve.core.buckets import Bucket
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.runner.programs import engine_shapes
from jaxserve.runner.programs.hlo import read_hlo
from tests.support.compiled.aot import assert_in_place, gpu_mesh, tpu_mesh
from tests.support.compiled.aot_step import StepCase
from tests.support.compiled.cuda_graphs import assert_no_waits
from tests.support.compiled.mixed_blocks import Q4_K_M

DECODE = Bucket(64, 64, 128)
FEW = Bucket(8, 8, 128)
MB = 10**6


def check_blocks(mesh: Mesh, form: str) -> None:
    """On one chip. The head also writes 33 MB of logits, for 295 MB of weights in Q4_0."""
    step = StepCase(mesh, "llama-3-8b", DECODE, scheme=form)
    layers, ends = step.compile_backbone(), step.compile_ends()
    assert_in_place(layers, step.state.kv.pool, max_temp_bytes=7 * MB)
    assert not step.weight_copies(layers) + step.weight_copies(ends)
    assert 1 <= step.traffic(layers, "layers") <= 1.08
    assert step.traffic(ends, "lm_head") <= 1.3


def check_blocks_on_four_chips(mesh: Mesh, form: str) -> None:
    """A kernel on each chip has its part, also of the embedding."""
    step = StepCase(mesh, "llama-3-8b", FEW, scheme=form)
    layers = step.compile_backbone()
    assert layers.as_text().count('op_name="multiply_blocks/pallas_call"') >= 4
    assert_in_place(layers, step.state.kv.pool, max_temp_bytes=2 * MB)
    assert not step.weight_copies(layers)
    assert 1 <= step.traffic(layers, "layers") <= 1.02


def check_whole_step(mesh: Mesh, form: str, model: str = "llama-3-8b", most: float = 1.08) -> None:
    """Of 8 rows, on TPUs or GPUs: all that a device reads and writes but pages of the KV, over the blocks of layers and
    head."""
    step = StepCase(mesh, model, FEW, scheme=form)
    with assert_no_waits() if mesh.devices.flat[0].platform == "gpu" else nullcontext({}) as options:
        compiled = step.compile(**options)
    assert not step.weight_copies(compiled)
    head = "embed" if SHAPES[model].is_tied else "lm_head"
    assert 1 <= step.traffic(compiled, "layers", head) <= most


def check_mixed_layers(mesh: Mesh) -> None:
    """Of 8 rows, with the forms of Q4_K_M. On a GPU no condition selects a layer's."""
    step = StepCase(mesh, "llama-3-8b", FEW, scheme=Q4_K_M)
    layers = step.compile_backbone()
    if mesh.devices.flat[0].platform == "gpu":
        assert not any(line.opcode == "conditional" for line in read_hlo(layers.as_text()).instructions)
    assert not step.weight_copies(layers)
    assert 1 <= step.traffic(layers, "layers") <= 1.08


def test_a_tpu_reads_blocks_once():
    check_blocks(tpu_mesh("v6e:2x2"), "Q4_0")


@pytest.mark.thorough
def test_a_gpu_reads_blocks_of_layers_that_differ_once():
    """As the files that most publish have them: three loops, of which the second runs three layers in a turn."""
    check_mixed_layers(gpu_mesh())


@pytest.mark.thorough
def test_a_tied_head_in_blocks_is_read_once():
    check_whole_step(tpu_mesh("v6e:2x2"), "Q6_K", "llama-3.2-1b")


@pytest.mark.thorough
def test_the_control_blocks_that_are_stored_by_rows_are_copied(monkeypatch):
    monkeypatch.setattr(engine_shapes, "stored", lambda params, mesh: params)
    step = StepCase(tpu_mesh("v6e:2x2"), "llama-3-8b", DECODE, scheme="Q4_0")
    layers = step.compile_backbone()
    assert step.weight_copies(layers)
    assert layers.memory_analysis().temp_size_in_bytes > 500 * MB
