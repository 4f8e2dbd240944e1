"""Wiring: compilers that start from exported programs: those of `jaxserve compile`, or those of earlier processes.

Tracing SmolLM2's two steps takes 40 % of a start whose executables are all in the compilation cache.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
from etils import epath  # pyright: ignore[reportMissingTypeStubs]

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import POOL_SIZES, EngineConfig
from jaxserve.engine.build.engine_spec import EngineSpec
from jaxserve.engine.build.memory_fallback import excess_bytes
from jaxserve.engine.build.startup import cache_key
from jaxserve.engine.build.startup.compiled_folder import CompiledFolder, read_compiled
from jaxserve.engine.build.startup.program_store import PROGRAMS, ProgramStore
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.runner.programs.executables import Compiler, Executables
from jaxserve.runner.programs.exported_programs import export_program, from_exported
from jaxserve.runner.programs.program import Program


def compiler_for(config: EngineConfig, spec: EngineSpec) -> Compiler:
    """The compiler of an engine: it starts from the programs of `compiled`, from those that `keep_lowered` keeps, or
    traces.

    Raises ConfigError naming what differs between the folder of `compiled` and the engine to be built.
    """
    if config.compiled is None and not config.keep_lowered:
        return Program.compile
    digest = cache_key.program_digest(spec.programs)
    if config.compiled is not None:
        folder = read_compiled(Path(config.compiled))
        folder.check(_engine_key(spec))
        return lambda program: from_exported(program, folder.get(program.name, digest)).compile()
    store = ProgramStore(epath.Path(str(jax.config.jax_compilation_cache_dir)) / PROGRAMS)
    return lambda program: from_exported(program, _exported(store, program, digest)).compile()


def with_compiled_sizes(config: EngineConfig, model: ModelConfig) -> EngineConfig:
    """The options, those left open as in the folder of `compiled`, if it is given.

    model: `EngineParts.described`. Raises ConfigError where the folder was made for another model.
    """
    if config.compiled is None:
        return config
    folder = read_compiled(Path(config.compiled))
    folder.check(cache_key.model_key(model))
    left_open = {name for name in folder.sizes if getattr(config, name, 0) is None}
    if any(getattr(config, name) is not None for name in POOL_SIZES):
        left_open.discard("num_pages")
    return replace(config, **{name: folder.sizes[name] for name in left_open})


def write_compiled(
    config: EngineConfig, spec: EngineSpec, described: ModelConfig, path: Path, on_compiled: Callable[[str], None]
) -> None:
    """Fill a folder, made by `compiled_folder.clear` and whose cache JAX uses already, with an engine's programs.

    described: `EngineParts.described`. on_compiled: called with the name of each program. Raises
    ConfigError where the programs need more memory than the pool leaves.
    """
    programs = spec.programs
    sizes = asdict(spec.sizes) | {"buckets": str(spec.buckets)}
    del sizes["lost_pages"]
    folder = CompiledFolder(path, cache_key.model_key(described) | _engine_key(spec), sizes)
    digest = cache_key.program_digest(programs)

    def compile(program: Program) -> Any:
        exported = export_program(program)
        folder.put(program.name, digest, exported)
        return from_exported(program, exported).compile()  # later processes do the same, and find it in the cache

    executables = Executables(compile)
    executables.compile_all(programs.all(spec.buckets.all()), on_compiled)
    if missing := excess_bytes(config, spec, executables.by_name.values()):
        raise ConfigError(
            f"compiled steps need {missing:,} bytes per device more than num_pages={programs.num_pages} leave; lower "
            "memory_utilization, or set a smaller num_pages",
            param="num_pages",
        )
    folder.save()


def _engine_key(spec: EngineSpec) -> dict[str, Any]:
    return cache_key.engine_key(spec.programs) | {"buckets": [str(bucket) for bucket in spec.buckets.all()]}


def _exported(store: ProgramStore, program: Program, digest: str) -> bytes:
    """From the store, or put there now; a store that cannot be read or written costs time alone."""
    exported = None
    with suppress(OSError):
        exported = store.get(program.name, digest)
    if exported is None:
        exported = export_program(program)
        try:
            store.put(program.name, digest, exported)
        except OSError as error:
            warnings.warn(f"{store.folder} cannot be written ({error}): later processes trace again", stacklevel=2)
    return exported
