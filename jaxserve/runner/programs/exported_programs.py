"""Device: exported programs (`jax.export`): lowered by one process, compiled by others without tracing."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import jax
from jax import export

from jaxserve.kv.kv_state import KVState
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.programs.programs import Program
from jaxserve.runner.sink_copies import SinkCopies
from jaxserve.runner.step.step_output import ExtraOutputs
from jaxserve.sampling.slot_state import SlotState

EXPORT_NAMES = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
"""`jax.export`'s name of each platform."""


def _no_bytes(_: Any) -> bytes:
    return b""


def _no_fields(_: bytes) -> tuple[()]:
    return ()


for record in (DeviceState, KVState, SlotState):
    export.register_pytree_node_serialization(
        record,
        serialized_name=f"jaxserve.{record.__name__}",
        serialize_auxdata=_no_bytes,
        deserialize_auxdata=_no_fields,
    )
for arrays in (ExtraOutputs, SinkCopies):
    export.register_namedtuple_serialization(arrays, serialized_name=f"jaxserve.{arrays.__name__}")


def export_program(program: Program) -> bytes:
    """A serialized program: StableHLO with the trees and shapes of its arguments and results.

    No safety check is disabled: kernels for TPU and GPU are calls whose format JAX keeps stable.
    """
    platform = program.mesh.devices.flat[0].platform
    with jax.set_mesh(program.mesh):
        exported = export.export(program.jitted, platforms=[EXPORT_NAMES[platform]])
        return bytes(exported(*program.args).serialize())


def from_exported(program: Program, exported: bytes) -> Program:
    """The same program with the exported function: compiling it runs none of its Python.

    The bytes are code: they must come from a trusted source.
    """
    if program.mesh.devices.flat[0].platform == "gpu":
        import_module("jax.experimental.mosaic.gpu")  # registers the kernels' run time with XLA
    return replace(program, function=export.deserialize(bytearray(exported)).call)
