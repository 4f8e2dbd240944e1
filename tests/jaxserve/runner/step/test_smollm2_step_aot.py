"""SmolLM2 135M, whose rows fill no whole tiles of a TPU: neither its layers nor its tied embedding are copied."""

import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.runner.programs import programs
from tests.support.compiled.aot import gpu_mesh, tpu_mesh
from tests.support.compiled.aot_step import StepCase

DECODE = Bucket(64, 64, 128)
MESHES = {"v6e": lambda: tpu_mesh("v6e:2x2"), "tpu7x": lambda: tpu_mesh("tpu7x:2x2x1"), "h200": gpu_mesh}


def case(target: str) -> StepCase:
    return StepCase(MESHES[target](), "smollm2-135m", DECODE)


@pytest.mark.parametrize("target", MESHES)
def test_embedding_and_head_read_the_same_array(target):
    step = case(target)
    assert not step.weight_copies(step.compile_ends())


def test_the_control_the_compilers_own_layout_is_copied(monkeypatch):
    monkeypatch.setattr(programs, "stored", lambda params, mesh: params)
    step = case("v6e")
    (found,) = step.weight_copies(step.compile_ends())
    assert "embed" in found


@pytest.mark.parametrize("target", ["v6e", "h200"])
def test_no_layer_copies_its_weights(target):
    step = case(target)
    assert not step.weight_copies(step.compile_backbone())
