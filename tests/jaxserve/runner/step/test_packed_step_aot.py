"""Layers and head of Llama 3 8B with packed weights, compiled ahead of time: no decoded weights are made, and codes are
read once. `scripts/prove aot` compiles all of them."""

import pytest
from jax.sharding import Mesh

from jaxserve.core.buckets import Bucket
from tests.support.compiled.aot import assert_in_place, gpu_mesh, ptxas_report, tpu_mesh
from tests.support.compiled.aot_step import FORMS, OUTLIERS, StepCase

DECODE = Bucket(64, 64, 128)
MB = 10**6
# Beyond the codes: activations, and on a GPU the sums of integers in 32 bits, of two parts for weights alone.
MOST_TRAFFIC = {"tpu": 1.08, "gpu": 1.4}
OUTLIER_SUMS = {"tpu": 0.0, "gpu": 0.1}  # those of outliers, in float32: of W8A8 1.23 without, 1.47 with them
MOST_TEMPORARIES = {"tpu": 7 * MB, "gpu": 50 * MB}  # on a GPU 34 MB are cuBLAS's


def check_packed_layers(mesh: Mesh, scheme: str) -> None:
    step, platform = StepCase(mesh, "llama-3-8b", DECODE, scheme=scheme), mesh.devices.flat[0].platform
    layers, most = step.compile_backbone(), MOST_TRAFFIC[platform]
    if scheme == OUTLIERS.name:
        most += OUTLIER_SUMS[platform]
    assert_in_place(layers, step.state.kv.pool, max_temp_bytes=MOST_TEMPORARIES[platform])
    for compiled, part in ((layers, "layers"), (step.compile_ends(), "lm_head")):
        assert not step.weight_copies(compiled)
        assert 1 <= step.traffic(compiled, part) <= most


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("topology", "scheme"), [("v6e:2x2", "int8"), ("v6e:2x2", OUTLIERS.name), ("tpu7x:2x2x1", "fp8")]
)
def test_tpus_read_codes_once(topology, scheme):
    check_packed_layers(tpu_mesh(topology, 4), scheme)


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["int8", OUTLIERS.name, "fp8"])
def test_gpus_read_codes_once(scheme):
    check_packed_layers(gpu_mesh(), scheme)


def check_blocks_on_gpus(form: str, num_devices: int = 1) -> None:
    """Assert that a step of 8 rows reads packed bytes once. Attention writes and reads partial results of 6 MB a layer
    on each of two devices, too, 0.09 of the packed bytes of one; and where values are looked up, thread blocks of two
    warpgroups have twice as many splits, whose sums are 0.02 more, on two devices 0.04."""
    step = StepCase(gpu_mesh(num_devices=num_devices), "llama-3-8b", Bucket(8, 8, 128), scheme=form)
    with ptxas_report() as kernels:
        layers = step.compile_backbone()
    most = {1: 1.08, 2: 1.16}[num_devices] + (0.02 * num_devices if FORMS[form].values else 0)
    assert [kernel.kernel for kernel in kernels].count("block_tiles") == 4
    assert not any(kernel.spill_bytes for kernel in kernels)
    assert_in_place(layers, step.state.kv.pool, max_temp_bytes=4 * MB)
    for compiled, part in ((layers, "layers"), (step.compile_ends(), "lm_head")):
        assert not step.weight_copies(compiled)
        assert 1 <= step.traffic(compiled, part) <= most


def check_prompts_with_blocks_on_a_gpu(form: str) -> None:
    """Assert that a step with prompts makes no decoded weights."""
    mixed = StepCase(gpu_mesh(), "llama-3-8b", Bucket(256, 8, 128), scheme=form)
    layers = mixed.compile_backbone()
    assert not mixed.weight_copies(layers)
    assert_in_place(layers, mixed.state.kv.pool, max_temp_bytes=40 * MB)  # activations of 256 tokens


@pytest.mark.thorough
def test_gpus_read_blocks_once():
    """In rows of 7168 inputs of `down`, whose blocks of 256 have numbers that no copy begins at."""
    check_blocks_on_gpus("Q4_K", num_devices=2)
