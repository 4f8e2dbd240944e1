"""Wiring: lowered programs kept beside the compilation cache, so that a later process does not trace them again.

Tracing SmolLM2's two steps takes 40 % of a start whose executables are all in the cache. A program is found by its
pins: what it was traced from. What changes Python without changing a file (a patched function) is not among them.
"""

import hashlib
import json
import os
import warnings
from typing import Any

from etils import epath

from jaxserve.engine.build.engine_spec import EngineSpec
from jaxserve.engine.build.startup.cache_key import model_pins, program_pins
from jaxserve.runner.programs.executables import Compiler
from jaxserve.runner.programs.exported_programs import export_program, from_artefact
from jaxserve.runner.programs.programs import Program

DIGEST_BYTES = 32


def lowered_once(folder: epath.Path, blueprint: EngineSpec) -> Compiler:
    """What makes executables of programs whose artefacts are in the folder, and puts there those that are not.

    The folder must be trusted as code is, just as JAX's compilation cache. One that cannot be written is of no use, and
    no harm.
    """
    programs = blueprint.programs
    pins = model_pins(programs.settings.model.config) | program_pins(programs, blueprint.buckets)
    del pins["buckets"]  # a program is one of them, or of none

    def compile(program: Program) -> Any:
        key = json.dumps([program.name, pins], sort_keys=True)
        path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.export"
        artefact = _read(path)
        if artefact is None:
            artefact = export_program(program)
            _write(path, artefact)
        return from_artefact(program, artefact).compile()

    return compile


def _read(path: epath.Path) -> bytes | None:
    """The artefact; None where there is none, or not what was written."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, artefact = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    return artefact if hashlib.sha256(artefact).digest() == digest else None


def _write(path: epath.Path, artefact: bytes) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(hashlib.sha256(artefact).digest() + artefact)
        draft.replace(path)
    except OSError as error:
        warnings.warn(f"{path.parent} cannot be written ({error}): later processes trace again", stacklevel=2)
