"""Wiring: an engine from the folder that `jaxserve compile` wrote: its options there, and executables without tracing.

The folder must be trusted as code is: what lies in it is compiled and run.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from etils import epath

from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.engine_spec import EngineSpec
from jaxserve.engine.build.startup.cache_key import model_pins, program_pins
from jaxserve.engine.build.startup.lowered_cache import lowered_once
from jaxserve.engine.build.startup.program_store import read_manifest
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.runner.programs.executables import Compiler
from jaxserve.runner.programs.exported_programs import from_artefact
from jaxserve.runner.programs.programs import Program

LOWERED = "lowered"  # in the folder of the compilation cache
POOL_SIZES = ("num_pages", "kv_cache_memory_bytes", "memory_utilization")  # each says how large the pool is


def with_sizes(config: EngineConfig, model: ModelConfig) -> EngineConfig:
    """The options, with the sizes that they leave open as in the folder of `compiled`, if they name one.

    model: as its checkpoint describes it. Raises ConfigError where the folder was made for another one.
    """
    if config.compiled is None:
        return config
    manifest = read_manifest(Path(config.compiled))
    manifest.check(model_pins(model))
    has_pool = any(getattr(config, name) is not None for name in POOL_SIZES)
    left_open = {name for name in manifest.sizes if getattr(config, name, 0) is None}
    if has_pool:
        left_open.discard("num_pages")
    return replace(config, **{name: manifest.sizes[name] for name in left_open})


def compiler_for(config: EngineConfig, blueprint: EngineSpec) -> Compiler:
    """What makes executables: the artefacts of `compiled`, those kept from earlier, or the programs' own Python.

    Raises ConfigError naming what differs between the folder and the engine that is to be built.
    """
    if config.compiled is None:
        if config.keep_lowered:
            return lowered_once(epath.Path(jax.config.jax_compilation_cache_dir) / LOWERED, blueprint)
        return Program.compile
    manifest = read_manifest(Path(config.compiled))
    manifest.check(program_pins(blueprint.programs, blueprint.buckets))

    def compile(program: Program) -> Any:
        return from_artefact(program, manifest.artefact(program.name)).compile()

    return compile
