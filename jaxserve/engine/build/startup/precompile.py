"""Wiring: a built engine's programs written for later processes, each lowered, and compiled from its artefact."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.build import EngineParts
from jaxserve.engine.build.memory_fallback import excess_bytes
from jaxserve.engine.build.startup.cache_key import model_pins, program_pins
from jaxserve.engine.build.startup.program_store import ProgramManifest
from jaxserve.runner.programs.executables import Executables
from jaxserve.runner.programs.exported_programs import export_program, from_artefact
from jaxserve.runner.programs.programs import Program


def write_compiled(config: EngineConfig, parts: EngineParts, folder: Path, on_compiled: Callable[[str], None]) -> None:
    """Fill a folder that `manifest.clear` has made, and whose cache JAX uses already; `on_compiled` hears each name.

    Raises ConfigError where the programs need more memory than the pool leaves.
    """
    programs = parts.runner.programs
    pins = model_pins(parts.described) | program_pins(programs, parts.buckets)
    sizes = asdict(parts.limits) | {"buckets": str(parts.buckets)}
    del sizes["lost_pages"]
    manifest = ProgramManifest(folder, pins, sizes)

    def compile(program: Program) -> Any:
        artefact = export_program(program)
        manifest.add(program.name, artefact)
        return from_artefact(program, artefact).compile()  # as a later process does it, which finds it in the cache

    executables = Executables(compile)
    executables.compile_all(programs.all(parts.buckets.all()), on_compiled)
    if missing := excess_bytes(config, parts.blueprint, executables.by_name.values()):
        raise ConfigError(
            f"compiled steps need {missing:,} bytes a device more than num_pages={programs.num_pages} leave; lower "
            "memory_utilization, or set a smaller num_pages",
            param="num_pages",
        )
    manifest.save()
