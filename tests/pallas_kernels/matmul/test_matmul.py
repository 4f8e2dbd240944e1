"""XLA's `matmul` equals the reference, arguments are checked, and "auto" uses the kernel where it was faster."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.mesh import AbstractDevice  # jax has no public name for a device that is not there
from jax.sharding import AbstractMesh

from pallas_kernels.matmul import cpu_products
from pallas_kernels.matmul.api import matmul
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu import block_rules
from pallas_kernels.matmul.workload_arguments import build, types_of
from pallas_kernels.matmul.workloads import BENCH_WORKLOADS, CODED_WORKLOADS, PACKED_WORKLOADS, Workload, packed
from pallas_kernels.tuned_blocks import forget, tuned
from tests.pallas_kernels.matmul.matmul_checks import check, multiply, op_of

PLAIN = Workload("plain", 5, 192, 128)
WORKLOADS = [
    PLAIN,
    replace(PLAIN, name="added", has_bias=True, has_residual=True, num_layers=3),
    replace(PLAIN, name="float32", dtype="float32", has_residual=True),
    replace(PLAIN, name="summed_elsewhere", num_rows=70, out_dtype="float32"),
    replace(PLAIN, name="silu", activation="silu"),
    replace(PLAIN, name="gelu_tanh", activation="gelu_tanh", dtype="float16"),
]
by_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


@by_workload
def test_xla_equals_the_reference(workload):
    check(workload, "xla")


@pytest.mark.parametrize("rule", [cpu_products.AMX, cpu_products.ZEN4, cpu_products.OTHER], ids=lambda rule: rule.name)
@pytest.mark.parametrize("num_rows", [1, 8, 65, 128])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_form_of_a_product_on_cpus_equals_the_reference(monkeypatch, rule, num_rows, dtype):
    monkeypatch.setattr(cpu_products, "cpu_rule", lambda: rule)
    check(replace(PLAIN, num_rows=num_rows, dtype=dtype, has_bias=True), "xla")


def test_only_matrices_of_moderate_size_are_converted(monkeypatch):
    """The second is the head of a model: its copy in float32 would be larger than the model."""
    monkeypatch.setattr(cpu_products, "cpu_rule", lambda: cpu_products.OTHER)
    for num_columns, is_converted in ((2**10, True), (2**17, False)):
        shapes = [jax.ShapeDtypeStruct((n, 256), jnp.bfloat16) for n in (128, num_columns)]
        program = jax.make_jaxpr(partial(cpu_products.cpu_product, dtype=jnp.dtype(jnp.bfloat16)))(*shapes)
        assert (f"f32[{num_columns},256]" in str(program)) == is_converted


@by_workload
def test_the_reference_itself_sees_one_layer(workload):
    y = multiply(build(workload), backend="reference")
    assert y.shape == (workload.num_rows, workload.num_columns)
    assert np.isfinite(y).all()
    other = multiply(build(workload), backend="reference", layer=jnp.int32(0))
    assert np.isnan(other).all(), "the control: all other layers hold NaN"


def test_float32_is_not_rounded_before_devices_add_it():
    workload = next(w for w in WORKLOADS if w.out_dtype)
    y = multiply(build(workload), backend="xla")
    assert (y != y.astype(jnp.bfloat16).astype(np.float32)).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "silu"}, r"a layer has outputs \(192,\); activation='silu' needs \(2, columns\)"),
        (
            {"activation": "silu", "stack": jnp.zeros((1, 3, 64, 128))},
            r"a layer has outputs \(3, 64\); activation='silu' needs \(2, columns\)",
        ),
        (
            {"activation": "silu", "stack": jnp.zeros((1, 2, 192, 128)), "bias": jnp.zeros(192)},
            "adds neither a bias nor a residual",
        ),
        ({"activation": "relu"}, "activation='relu' is unknown; use one of silu, gelu_tanh"),
        ({"backend": "cublas"}, "backend='cublas' is unknown"),
    ],
)
def test_contradictions_are_told(changes, message):
    with pytest.raises(ValueError, match=message):
        multiply(build(PLAIN), **changes)


@pytest.mark.parametrize(
    ("workload", "block", "reason"),
    [
        (replace(PLAIN, dtype="float32"), None, "it multiplies bfloat16 or float16, not float32 by float32"),
        (replace(PLAIN, num_rows=65), None, "it is for at most 64 rows, not 65"),
        (replace(PLAIN, num_columns=100), None, "100 columns are no multiple of 64"),
        (replace(PLAIN, num_inputs=96), None, "96 inputs are no multiple of 64"),
        (PLAIN, BlockSizes(128, 64, 1), "blocks of 128 columns do not divide 192"),
        (PLAIN, BlockSizes(64, 32, 1), "blocks of 32 inputs do not divide 128, or are no multiple of 64"),
        (
            Workload("large", 64, 512, 512, "silu"),
            BlockSizes(512, 128, 1),
            "two steps of 128 inputs exceed shared memory",
        ),
    ],
)
def test_the_kernel_refuses_with_a_reason(workload, block, reason):
    with pytest.raises(NotImplementedError, match=rf"mosaic_gpu: {reason}"):
        multiply(build(workload), backend="mosaic_gpu", block=block)


def test_sizes_are_powers_of_two():
    with pytest.raises(ValueError, match="splits=3 must be a power of two"):
        BlockSizes(64, 64, 3)
    for backend in ("xla", "reference"):
        with pytest.raises(NotImplementedError, match="it has no blocks"):
            multiply(build(PLAIN), backend=backend, block=BlockSizes(64, 64, 1))


H200 = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
ENTRY = {"num_rows": 8, "num_columns": 192, "num_inputs": 128, "kind": "plain"}
ENTRY |= {"dtype": "bfloat16", "weight_dtype": "bfloat16"}


def traced_for(device: AbstractDevice, workload: Workload, backend: str = "auto") -> str:
    arguments = build(workload)
    spec = replace(arguments.pop("spec"), backend=backend)
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("tensor",), abstract_device=device)):
        return str(jax.make_jaxpr(partial(op_of(arguments["stack"]), spec=spec))(**arguments))


def test_auto_uses_the_kernel_where_a_measurement_says_that_it_is_faster(tmp_path, monkeypatch):
    monkeypatch.setattr(block_rules, "tuned", partial(tuned, folder=tmp_path))
    assert "dot_general" in traced_for(H200, PLAIN), "nothing was measured"
    assert "matmul_tiles" in traced_for(H200, PLAIN, "mosaic_gpu"), "by name it runs with sizes by rule"
    file = tmp_path / "nvidia_h200" / "matmul.json"
    file.parent.mkdir()
    block = {"columns": 64, "inputs": 64, "splits": 2}
    file.write_text(json.dumps({"op": "matmul", "entries": [ENTRY | {"block": block}]}))
    forget()
    measured = traced_for(H200, PLAIN)
    assert "matmul_tiles" in measured
    assert "f32[2,1,8,3,64]" in measured, "with the sizes that were measured"
    for other in (
        replace(PLAIN, num_rows=1),
        replace(PLAIN, num_rows=16),
        replace(PLAIN, dtype="float16"),
        packed(PLAIN),
    ):
        assert "dot_general" in traced_for(H200, other), "at other sizes XLA may be faster"
    for kind in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"):
        other = AbstractDevice(device_kind=kind, num_cores=None, platform="gpu")
        assert "dot_general" in traced_for(other, PLAIN)
    file.write_text(json.dumps({"op": "matmul", "entries": [ENTRY | {"weight_dtype": "int8", "block": block}]}))
    forget()
    assert "matmul_tiles" in traced_for(H200, packed(PLAIN))
    assert "dot_general" in traced_for(H200, PLAIN)
    assert "dot_general" in traced_for(H200, packed(PLAIN, "w8a8"))
    of_codes = {"dtype": "int8", "weight_dtype": "int8", "block": block}
    file.write_text(json.dumps({"op": "matmul", "entries": [ENTRY | of_codes]}))
    forget()
    assert "matmul_tiles" in traced_for(H200, packed(PLAIN, "w8a8"))
    assert "matmul_tiles" in traced_for(H200, packed(PLAIN, "fp8")), "XLA would copy the layer's codes"


def test_named_workloads_are_served_by_rule():
    workloads = (*BENCH_WORKLOADS, *PACKED_WORKLOADS, *CODED_WORKLOADS)
    names = [w.name for w in workloads]
    assert len(set(names)) == len(names)
    for w in workloads:
        block = block_rules.by_rule(w.num_rows, w.num_columns, w.num_inputs, w.num_parts, types_of(w)[1])
        assert w.num_columns % block.columns == 0
        assert w.num_inputs % block.inputs == 0
        assert w.num_inputs // block.splits >= block_rules.MIN_INPUTS or block.splits == 1


@pytest.mark.parametrize("num_rows", [1, 2, 8, 9, 64, 65])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_weights_on_the_left_give_the_product(dtype, num_rows):
    """On CPU, for few rows."""
    check(replace(PLAIN, num_rows=num_rows, dtype=dtype, num_layers=2), "xla")


def test_outputs_keep_their_axes_and_layers_may_be_apart():
    rng = np.random.default_rng(0)
    x, stack, bias = (jnp.asarray(rng.normal(size=n), jnp.float32) for n in ((3, 8), (2, 2, 5, 8), (2, 5)))
    expected = np.einsum("ti,aoi->tao", x, stack[1]) + np.asarray(bias)
    for backend in ("xla", "reference"):
        for form in (stack, tuple(stack)):
            y = matmul(x, form, jnp.int32(1), MatmulSpec(backend=backend), bias=bias)
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_the_kernel_serves_one_device():
    mesh = AbstractMesh((2,), ("tensor",), abstract_device=H200)
    arguments = build(PLAIN)
    spec = replace(arguments.pop("spec"), backend="mosaic_gpu")
    with jax.sharding.use_abstract_mesh(mesh), pytest.raises(NotImplementedError, match="one device, not of 2"):
        jax.make_jaxpr(partial(matmul, spec=spec))(**arguments)
