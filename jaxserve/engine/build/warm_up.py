"""Wiring: compiles all programs before service, and checks the pool's size against the memory that they need."""

from jaxserve.core.errors import RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.progress_bars import CompileBar
from jaxserve.engine.build.build import EngineParts, assemble
from jaxserve.engine.build.engine_spec import EngineSpec
from jaxserve.engine.build.memory_fallback import MemoryShortage, detect_shortage, excess_bytes, with_room
from jaxserve.engine.build.startup.precompile import compiler_for


def warmed_up(config: EngineConfig, parts: EngineParts, *, show_progress: bool) -> EngineParts:
    """The engine with every program compiled and no other allowed; another one, of fewer pages, if memory ran out."""

    def attempt(spec: EngineSpec) -> EngineParts:
        nonlocal parts
        if spec is not parts.spec:
            parts = _rebuilt(config, parts, spec)
        _compile(config, parts, show_progress)
        return parts

    parts = with_room(config, parts.spec, parts.described, attempt, is_each_reported=True)
    parts.runner.freeze()
    return parts


def _compile(config: EngineConfig, parts: EngineParts, show_progress: bool) -> None:
    """Raises `MemoryShortage`, or RequestError where the pool cannot shrink because requests use it."""
    programs = parts.runner.programs.all(parts.spec.buckets.all())
    try:
        with (
            detect_shortage(parts.spec, "memory ran out while steps were compiled"),
            CompileBar(show_progress, len(programs)) as bar,
        ):
            parts.runner.warm_up(programs, bar.update)
        if missing := excess_bytes(config, parts.spec, parts.runner.executables.values()):
            raise MemoryShortage(parts.spec, missing, "compiled steps need more memory than was set aside")
    except MemoryShortage as shortage:
        if parts.engine.has_work:
            raise RequestError(
                f"{shortage.why}, and the pool cannot shrink while requests are under way: warm up before them"
            ) from shortage
        raise


def _rebuilt(config: EngineConfig, parts: EngineParts, spec: EngineSpec) -> EngineParts:
    """The engine with other sizes; its old state is released before the new one is allocated."""
    compiler, runner = compiler_for(config, spec), parts.runner
    runner.release()
    return assemble(
        config,
        spec,
        compiler,
        parts.described,
        runner.params,
        parts.text,
        runner.draft_params,
        parts.input_processor.adapters.store,
    )
