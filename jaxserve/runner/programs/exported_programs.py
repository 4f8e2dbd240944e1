"""Device: exported programs (`jax.export`): lowered by one process, compiled by others without tracing."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any, cast

import jax
from jax import export

from jaxserve.kv.kv_state import KVState
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.programs.program import Program
from jaxserve.runner.sink_copies import SinkCopies
from jaxserve.runner.step.step_output import ExtraOutputs, LateNodes
from jaxserve.sampling.slot_state import SlotState
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.form_keys import form_of_key, key_of
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import QTensor, Scheme

EXPORT_NAMES = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
"""`jax.export`'s name of each platform."""


def _no_bytes(_: Any) -> bytes:
    return b""


def _no_fields(_: bytes) -> tuple[()]:
    return ()


def _scheme_bytes(fields: tuple[Scheme, str]) -> bytes:
    return json.dumps([asdict(fields[0]), fields[1]]).encode()


def _scheme_fields(stored: bytes) -> tuple[Scheme, str]:
    scheme, dtype = json.loads(stored)
    return Scheme(**scheme), dtype


def _form_bytes(fields: tuple[BlockForm, str]) -> bytes:
    return json.dumps([key_of(fields[0]), fields[1]]).encode()


def _form_fields(stored: bytes) -> tuple[BlockForm, str]:
    form, dtype = json.loads(stored)
    return form_of_key(form), dtype


for record, to_bytes, to_fields in (
    (DeviceState, _no_bytes, _no_fields),
    (KVState, _no_bytes, _no_fields),
    (SlotState, _no_bytes, _no_fields),
    (RowParts, _no_bytes, _no_fields),
    (QTensor, _scheme_bytes, _scheme_fields),
    (BlockTensor, _form_bytes, _form_fields),
):
    export.register_pytree_node_serialization(
        record,
        serialized_name=f"jaxserve.{record.__name__}",
        serialize_auxdata=cast(Callable[[Any], bytes], to_bytes),
        deserialize_auxdata=to_fields,
    )
for arrays in (ExtraOutputs, LateNodes, SinkCopies):
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
