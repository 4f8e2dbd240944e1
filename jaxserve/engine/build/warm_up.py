"""Wiring: all programs compiled before service begins, and the pool held against what they turn out to need."""

import jax

from jaxserve.core.errors import RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.progress_bars import CompileBar
from jaxserve.engine.build.build import EngineParts, assemble
from jaxserve.engine.build.memory_fallback import excess_bytes, is_out_of_memory, missing_bytes, shrunk, tell
from jaxserve.engine.build.startup.precompile import compiler_for


def warmed_up(config: EngineConfig, parts: EngineParts, *, show_progress: bool) -> EngineParts:
    """The engine with every program compiled and no other allowed; another one, of fewer pages, if memory ran out."""
    while True:
        programs = parts.runner.programs.all(parts.buckets.all())
        try:
            with CompileBar(show_progress, len(programs)) as bar:
                parts.runner.warm_up(programs, bar.update)
            missing = excess_bytes(config, parts.blueprint, parts.runner.executables.values())
            why = "compiled steps need more memory than was set aside"
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            missing, why = missing_bytes(error), "memory ran out while steps were compiled"
        if missing == 0:
            parts.runner.freeze()
            return parts
        if parts.engine.has_work:
            raise RequestError(f"{why}, and the pool cannot shrink while requests are under way: warm up before them")
        parts = _rebuilt(config, parts, missing, why)


def _rebuilt(config: EngineConfig, parts: EngineParts, missing: int | None, why: str) -> EngineParts:
    """With fewer pages; the old state goes before the new one comes."""
    blueprint = shrunk(config, parts.blueprint, parts.described, missing, why)
    tell(parts.blueprint, blueprint, why)
    compiler, params = compiler_for(config, blueprint), parts.runner.params
    parts.runner.release()
    return assemble(config, blueprint, compiler, parts.described, params, parts.text)
