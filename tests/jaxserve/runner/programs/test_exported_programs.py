"""Every program of an engine with all options is exported and read back, steps excepted (`test_kept_programs`)."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.model_settings import Settings
from jaxserve.models.packing import Packing
from jaxserve.runner.drafts.ngram_proposer import NgramProposer
from jaxserve.runner.programs.exported_programs import export_program, from_exported
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.step.step_settings import StepSettings
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.qtensor import SCHEMES
from tests.support.tiny_engines import tiny_engine

NAMES = (
    "draw[rows=8]",
    "set_masks[rows=8]",
    "fork",
    "set_edits",
    "set_counts",
    "save_pages",
    "load_pages",
    "set_history",
    "copy_sinks",
)


@pytest.fixture(scope="module")
def programs():
    plain = tiny_engine("llama3").parts.runner.programs
    return {
        program.name: program
        for program in replace(plain, has_host_tier=True, history_len=64, num_sinks=3).all(buckets=[])
    }


def test_all_programs_are_named_here(programs):
    assert tuple(programs) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_read_back_and_compiled(programs, name):
    program = programs[name]
    again = from_exported(program, export_program(program))
    assert again.compile().in_tree == program.compile().in_tree


PARTS = tuple(GGML_FORMS[name] for name in ("Q4_0", "Q5_1", "Q8_0"))
PACKINGS = {
    "rows": Packing(SCHEMES["int8"], SCHEMES["int8"]),
    "rows with outliers": Packing(SCHEMES["w8a8"].with_outliers(16)),
    "blocks and parts": Packing(layers=int_form(4, 64, "float16", has_zeros=True), own=(("layers/global/qkv", PARTS),)),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", PACKINGS)
def test_a_step_of_packed_weights_is_read_back(name):
    model = replace(SHAPES["smollm2-135m"], layer_stacks=(0,))
    settings = Settings(model, make_mesh(1), jnp.dtype("bfloat16"), 32, packing=PACKINGS[name])
    program = Programs(StepSettings(settings, max_logprobs=0), 40, 8).step(Bucket(8, 8, 4))
    again = from_exported(program, export_program(program))
    assert again.compile().in_tree == program.compile().in_tree


@pytest.mark.thorough
def test_programs_with_drafts_of_late_rows_are_read_back():
    """The step of a verify bucket has results that no other has, which are arguments of the draw."""
    plain, bucket = tiny_engine("llama3").parts.runner.programs, Bucket(8, 2, 4, max_drafts=3)
    settings = replace(plain.settings, proposer=NgramProposer(1, 3))
    programs = replace(plain, settings=settings, history_len=64, num_draft_masks=6).all(buckets=[bucket])
    with_nodes = [program for program in programs if str(bucket) in program.name]
    assert [program.name for program in with_nodes] == [str(bucket), f"draw_{bucket}"]
    for program in with_nodes:
        again = from_exported(program, export_program(program))
        assert again.compile().in_tree == program.compile().in_tree
