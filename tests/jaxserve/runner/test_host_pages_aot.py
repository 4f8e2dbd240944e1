"""Copies to host memory and back, compiled for accelerators: in place in the pool, with small temporaries."""

import math

import pytest

from jaxserve.analysis.program_info import describe_program
from jaxserve.core.hardware.aot_targets import no_persistent_cache
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.engine_spec import make_spec
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.runner.host_pages import TRANSFER_PAGES
from tests.support.compiled.aot import gpu_mesh, tpu_mesh

SIZES = {"max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 64, "num_pages": 2000}
MESHES = {"two v6e": lambda: tpu_mesh("v6e:2x2", 2), "a v5e": lambda: tpu_mesh("v5e:2x2"), "a GPU": gpu_mesh}


@pytest.mark.parametrize(("mesh", "kind"), [("two v6e", "pinned_host"), ("a v5e", "pinned_host"), ("a GPU", None)])
def test_pages_are_copied_and_the_pool_stays(mesh, kind):
    """The topology description of a GPU lists no memories."""
    config = EngineConfig.create("qwen3-0.6b", **SIZES, host_kv_cache_bytes=2**30)
    programs = make_spec(config, SHAPES["qwen3-0.6b"], MESHES[mesh](), limit_bytes=None).programs
    transfers = [p for p in programs.all([]) if p.name in ("save_pages", "load_pages")]
    assert len(transfers) == 2
    moved_bytes = math.prod(programs.layout.shape(TRANSFER_PAGES)) * programs.layout.dtype.itemsize
    for program in transfers:
        with no_persistent_cache():
            info = describe_program(program, state=programs.state)
        assert not info.problems, program.name
        assert program.name != "save_pages" or program.out_shardings[1].memory_kind == kind
        assert info.temporary_bytes <= 2 * moved_bytes, program.name
