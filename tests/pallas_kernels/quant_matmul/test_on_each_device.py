"""Kernels of packed weights, interpreted, on several devices: each multiplies its own outputs or inputs, and together
they give the reference's result in float64."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.pallas.mosaic_gpu.interpret.shared_memory import GPUSharedMemory
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import ALL_SCHEMES, QTensor, encode
from pallas_kernels.quant_matmul.api import quant_matmul
from tests.pallas_kernels.host_callbacks import host_callbacks
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, errors
from tests.pallas_kernels.quant_matmul.mosaic_tpu.tpu_forms import FORMS, LAYERS, kept_on_tpu, random_stack

INPUTS = 1024
FORM_OF = {"mosaic_tpu": kept_on_tpu, "mosaic_gpu": FORMS.__getitem__}
CASES = [
    ("Q4_0", 2, (2, 128), 0, None),
    ("Q4_0", 2, (2, 256), 1, "silu"),
    ("Q4_0", 2, (128,), -1, None),
    ("Q8_0", 4, (128,), -1, None),
    ("NF4-g64 nested", 2, (2, 128), 0, None),
    ("NF4-g64 nested, parted", 2, (128,), -1, None),
]


@pytest.fixture(autouse=True)
def _interpreter_of_several_gpus() -> Iterator[None]:
    """The first GPU that ends finds the barriers of those that still run, which the interpreter takes for its own."""
    with host_callbacks(), patch.object(GPUSharedMemory, "assert_no_barriers_allocated", lambda memory: None):
        yield


def mesh_of(num_devices):
    return Mesh(np.array(jax.devices()[:num_devices]).reshape(1, -1), ("data", "tensor"))


def divided(stack, spec, mesh):
    """The stack as engines have it on devices."""
    rank = next(iter(stack.fields.values())).ndim
    axis = rank - 1 if spec.divided_axis == -1 else 1 + spec.divided_axis
    place = NamedSharding(mesh, PartitionSpec(*("tensor" if i == axis else None for i in range(rank))))
    return jax.device_put(stack, place)


def arguments(backend, form, out, activation):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(5, INPUTS)), jnp.bfloat16)
    stack = random_stack(FORM_OF[backend](form), INPUTS, *out)
    bias = None if activation else jnp.asarray(rng.normal(size=out), jnp.float32)
    return x, stack, jnp.int32(LAYERS - 1), bias


def coded(scheme, out):
    """A stack of rows with a scale each."""
    rows = np.random.default_rng(1).normal(size=(LAYERS, *out, INPUTS)) * INPUTS**-0.5
    return QTensor(*map(jnp.asarray, encode(rows, ALL_SCHEMES[scheme])), ALL_SCHEMES[scheme], "bfloat16")


def product(x, stack, layer, bias, spec):
    return jax.jit(partial(quant_matmul, spec=spec))(x, stack, layer, bias=bias)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", ["mosaic_tpu", "mosaic_gpu"])
@pytest.mark.parametrize(("form", "num_devices", "out", "axis", "activation"), CASES)
def test_devices_together_give_the_result(backend, form, num_devices, out, axis, activation):
    x, stack, layer, bias = arguments(backend, form, out, activation)
    spec = MatmulSpec(activation, divided_axis=axis, backend=backend)
    with jax.enable_x64(True):
        exact = replace(spec, backend="reference", out_dtype=jnp.dtype(jnp.float64))
        expected = np.asarray(quant_matmul(jnp.asarray(x, jnp.float64), stack, layer, exact, bias=bias))
    mesh = mesh_of(num_devices)
    with jax.set_mesh(mesh):
        y = product(x, divided(stack, spec, mesh), layer, bias, spec)
    assert len(y.sharding.device_set) == num_devices
    assert y.dtype == x.dtype
    rows = partial(np.reshape, shape=(len(x), -1))
    found = rows(np.asarray(y, np.float32))
    assert errors(found, rows(expected)).max() <= 4 * BOUNDS["bfloat16"] * (2 if activation else 1)


@pytest.mark.parametrize(("out", "axis", "activation"), [((2, 128), 1, "silu"), ((128,), -1, None), ((128,), 0, None)])
@pytest.mark.parametrize("scheme", ["w8a8", "fp8"])
def test_a_token_has_one_scale_on_all_devices(scheme, out, axis, activation):
    """Inputs of one device are larger: with scales of their own the others would have finer steps."""
    x, _, layer, bias = arguments("mosaic_gpu", "Q4_0", out, activation)
    x, stack = x.at[:, : INPUTS // 2].multiply(20), coded(scheme, out)
    spec = MatmulSpec(activation, jnp.dtype("float32"), axis, "mosaic_gpu")
    expected = np.asarray(product(x, stack, layer, bias, replace(spec, backend="reference")))
    mesh = mesh_of(2)
    names = ("tensor" if i == axis % (len(out) + 1) else None for i in range(len(out) + 1))
    codes, scales = (
        PartitionSpec(None, *names),
        PartitionSpec(None, *("tensor" if i == axis else None for i in range(len(out)))),
    )
    with jax.set_mesh(mesh):
        places = replace(stack, codes=NamedSharding(mesh, codes), scales=NamedSharding(mesh, scales))
        y = product(x, jax.device_put(stack, places), layer, bias, spec)
    assert len(y.sharding.device_set) == 2
    assert errors(np.asarray(y).reshape(len(x), -1), expected.reshape(len(x), -1)).max() <= 4 * BOUNDS["float32"]


def test_the_control_devices_with_each_others_inputs_are_seen():
    """As if a device took its part of the inputs to be that of another."""
    x, stack, layer, bias = arguments("mosaic_tpu", "Q4_0", (128,), None)
    spec = MatmulSpec(divided_axis=-1, backend="mosaic_tpu")
    mesh = mesh_of(2)
    with jax.set_mesh(mesh):
        own = np.asarray(product(x, divided(stack, spec, mesh), layer, bias, spec), np.float32)
        swapped = jnp.roll(x, INPUTS // 2, axis=1)
        other = np.asarray(product(swapped, divided(stack, spec, mesh), layer, bias, spec), np.float32)
    assert errors(other, own).max() > 0.1


@pytest.mark.parametrize("backend", ["mosaic_tpu", "mosaic_gpu"])
@pytest.mark.parametrize(
    ("changes", "out", "num_devices", "reason"),
    [
        ({}, (128,), 2, "divided_axis does not say how 2 devices divide the matrix"),
        ({"divided_axis": -1}, (128,), 3, r"of 1024 inputs 3 devices have no whole blocks of 32 \(Q4_0\)"),
        ({"divided_axis": -1, "activation": "silu"}, (2, 128), 2, "it applies a gate before devices' sums are added"),
        ({"divided_axis": 0, "activation": "silu"}, (2, 128), 2, "a gate and its other half must be on the same"),
        ({"divided_axis": 0}, (128,), 3, "128 outputs are no multiple of 3 devices"),
    ],
)
def test_what_devices_do_not_divide_is_refused_with_the_reason(backend, changes, out, num_devices, reason):
    x, stack, layer, _ = arguments(backend, "Q4_0", out, "silu")
    with jax.set_mesh(mesh_of(num_devices)), pytest.raises(NotImplementedError, match=f"{backend}: {reason}"):
        product(x, stack, layer, None, MatmulSpec(backend=backend, **changes))


def test_a_devices_part_that_the_kernel_does_not_serve_is_refused():
    x, stack, layer, _ = arguments("mosaic_gpu", "Q4_0", (128,), None)
    spec = MatmulSpec(divided_axis=0, backend="mosaic_gpu")
    with jax.set_mesh(mesh_of(4)), pytest.raises(NotImplementedError, match="32 columns are no multiple of 64"):
        product(x, stack, layer, None, spec)
