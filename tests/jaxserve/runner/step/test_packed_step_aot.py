"""Layers and head of Llama 3 8B with packed weights, compiled ahead of time: no decoded weights are made, and codes are
read once. `scripts/prove aot` compiles all of them."""

import pytest
from jax.sharding import Mesh

from jaxserve.core.buckets import Bucket
from tests.support.compiled.aot import assert_in_place, gpu_mesh, tpu_mesh
from tests.support.compiled.aot_step import StepCase

DECODE = Bucket(64, 64, 128)
MB = 10**6
# Beyond the codes: activations, and on a GPU the sums of integers in 32 bits, of two parts for weights alone.
MOST_TRAFFIC = {"tpu": 1.08, "gpu": 1.4}
MOST_TEMPORARIES = {"tpu": 7 * MB, "gpu": 50 * MB}  # on a GPU 34 MB are cuBLAS's


def check_packed_layers(mesh: Mesh, scheme: str) -> None:
    step, platform = StepCase(mesh, "llama-3-8b", DECODE, scheme=scheme), mesh.devices.flat[0].platform
    layers = step.compile_backbone()
    assert_in_place(layers, step.state.kv.pool, max_temp_bytes=MOST_TEMPORARIES[platform])
    for compiled, part in ((layers, "layers"), (step.compile_ends(), "lm_head")):
        assert not step.weight_copies(compiled)
        assert 1 <= step.traffic(compiled, part) <= MOST_TRAFFIC[platform]


@pytest.mark.parametrize(("topology", "scheme"), [("v6e:2x2", "int8"), ("tpu7x:2x2x1", "w8a8")])
def test_tpus_read_codes_once(topology, scheme):
    check_packed_layers(tpu_mesh(topology, 4), scheme)


def test_gpus_read_codes_once():
    check_packed_layers(gpu_mesh(), "int8")
