"""Exported programs for accelerators contain their kernels, and compile to the same executable in another process."""

import jax
import pytest

from jaxserve.core.hardware.aot_targets import no_persistent_cache
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.engine_spec import EngineSpec, make_spec
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.runner.programs.exported_programs import export_program, from_exported
from jaxserve.runner.programs.slot_programs import fork, set_masks
from tests.support.compiled.aot import gpu_mesh, tpu_mesh

SIZES = {"max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 64, "num_pages": 300}


def spec_on(mesh) -> EngineSpec:
    return make_spec(EngineConfig.create("qwen3-0.6b", **SIZES), SHAPES["qwen3-0.6b"], mesh, limit_bytes=None)


def test_a_program_for_several_tpus_is_updated_in_place_when_it_comes_from_an_export():
    programs = spec_on(tpu_mesh("v6e:2x2", 2)).programs
    forks = from_exported(fork(programs), export_program(fork(programs)))
    assert programs.traces == {"fork": 1}
    with no_persistent_cache():
        memory = forks.compile().memory_analysis()
    assert programs.traces == {"fork": 1}
    assert memory.alias_size_in_bytes >= device_bytes(programs.state)


@pytest.mark.thorough
def test_masks_of_many_rows_take_little_memory():
    """The bits of 64 rows, as numbers, take 39 MB."""
    programs = spec_on(tpu_mesh("v6e:2x2", 2)).programs
    with no_persistent_cache():
        memory = set_masks(programs, 64).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2**20
    assert memory.alias_size_in_bytes >= device_bytes(programs.state)


def test_a_step_for_tpus_needs_no_safety_check_switched_off():
    spec = spec_on(tpu_mesh("v6e:2x2"))
    step = spec.programs.step(spec.buckets.all()[0])
    exported = export_program(step)
    assert not jax.export.deserialize(bytearray(exported)).disabled_safety_checks
    assert "tpu_custom_call" in from_exported(step, exported).lower().as_text()


def test_a_program_for_gpus_comes_from_an_export_too():
    programs = spec_on(gpu_mesh()).programs
    forks = from_exported(fork(programs), export_program(fork(programs)))
    assert "mosaic_gpu_v2" in forks.lower().as_text()
