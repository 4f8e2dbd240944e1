"""SmolLM2 135M, whose rows fill no whole tiles of a TPU: neither its layers nor its tied embedding are copied, and on a
GPU a layer is few kernels."""

import jax
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.runner.programs import engine_shapes
from jaxserve.runner.programs.hlo import read_hlo
from tests.support.compiled.aot import gpu_mesh, tpu_mesh
from tests.support.compiled.aot_step import StepCase

DECODE = Bucket(64, 64, 128)
# Four products, two norms and their weights, attention with its partial results, rotary embedding of queries and of
# keys, the output's 64 of 128 lanes, the gate, and the loop's counter.
KERNELS_OF_LAYER = 15
LAUNCHED = {"fusion", "fusion-start", "custom-call", "copy", "copy-start", "conditional", "while", "sort"}
MESHES = {"v6e": lambda: tpu_mesh("v6e:2x2"), "tpu7x": lambda: tpu_mesh("tpu7x:2x2x1"), "h200": gpu_mesh}


def case(target: str) -> StepCase:
    return StepCase(MESHES[target](), "smollm2-135m", DECODE)


@pytest.mark.parametrize("target", MESHES)
def test_embedding_and_head_read_the_same_array(target):
    step = case(target)
    assert not step.weight_copies(step.compile_ends())


def test_the_control_the_compilers_own_layout_is_copied(monkeypatch):
    monkeypatch.setattr(engine_shapes, "stored", lambda params, mesh: params)
    step = case("v6e")
    (found,) = step.weight_copies(step.compile_ends())
    assert "embed" in found


@pytest.mark.parametrize("target", MESHES)
def test_no_layer_copies_its_weights(target):
    step = case(target)
    compiled = step.compile_backbone()
    assert not step.weight_copies(compiled)
    if target == "h200":
        assert len(kernels_of_layer(compiled)) <= KERNELS_OF_LAYER


def kernels_of_layer(compiled: jax.stages.Compiled) -> list[str]:
    """What the loop over the layers runs, each a launch."""
    program = read_hlo(compiled.as_text())
    (loop,) = (line for line in program.instructions if line.opcode == "while" and "known_trip_count" in line.line)
    bodies = [program.computations[name] for name in loop.called]
    return [line.name for line in max(bodies, key=len) if line.opcode in LAUNCHED]
