"""Device: artefacts: programs lowered by one process (`jax.export`), which others compile without tracing them."""

from dataclasses import replace
from importlib import import_module

import jax
from jax import export

from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.programs.programs import Program
from jaxserve.runner.step.step_output import Extras
from jaxserve.sampling.slot_state import SlotState

EXPORT_NAMES = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
"""What `jax.export` calls a device's platform."""

for record in (DeviceState, SlotState):
    export.register_pytree_node_serialization(
        record,
        serialized_name=f"jaxserve.{record.__name__}",
        serialize_auxdata=lambda _: b"",
        deserialize_auxdata=lambda _: (),
    )
export.register_namedtuple_serialization(Extras, serialized_name=f"jaxserve.{Extras.__name__}")


def export_program(program: Program) -> bytes:
    """The artefact of a program: StableHLO with the trees and shapes of what goes in and comes out.

    No safety check is switched off: kernels for TPU and GPU are calls whose form JAX keeps stable.
    """
    platform = program.mesh.devices.flat[0].platform
    with jax.set_mesh(program.mesh):
        exported = export.export(program.jitted, platforms=[EXPORT_NAMES[platform]])
        return bytes(exported(*program.args).serialize())


def from_artefact(program: Program, artefact: bytes) -> Program:
    """The same program, its function taken from the artefact: nothing of its Python runs when it is compiled.

    The artefact must be trusted as code is.
    """
    if program.mesh.devices.flat[0].platform == "gpu":
        import_module("jax.experimental.mosaic.gpu")  # tells XLA where its kernels' run time lies
    return replace(program, function=export.deserialize(bytearray(artefact)).call)
