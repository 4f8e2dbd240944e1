"""Device: `Executables`, compiled programs: each compiled once, on demand until `freeze`, never afterwards."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from jaxserve.core.compile_times import COMPILE_TIMES
from jaxserve.core.errors import FrozenBucketError
from jaxserve.runner.programs.program import Program

log = logging.getLogger(__name__)
Compiler = Callable[[Program], Any]


class Executables:
    """Compiled programs by name.

    compiler: makes an executable of a program.
    """

    def __init__(self, compiler: Compiler = Program.compile):
        self.by_name: dict[str, Any] = {}
        self._compiler = compiler
        self._is_frozen = False

    def get(self, name: str, program: Callable[[], Program]) -> Any:
        """The executable of this name; `program()` is called, and compiled, on first use."""
        if name not in self.by_name:
            if self._is_frozen:
                raise FrozenBucketError(
                    f"{name} was not compiled during warm-up and the engine is frozen; compiled programs: "
                    f"{', '.join(sorted(self.by_name))}. Add the shape to the buckets, or do not freeze."
                )
            log.info("compiling %s", name)
            self.by_name[name] = self._compile(program())
        return self.by_name[name]

    def compile_all(self, programs: list[Program], on_compiled: Callable[[str], None]) -> None:
        """Compile missing programs, as many at a time as there are processors: XLA releases the GIL.

        on_compiled: called in the calling thread with the name of each program.
        """
        with ThreadPoolExecutor(os.cpu_count(), "compile") as pool:
            futures: dict[Future[Any], str] = {}
            for program in programs:
                if program.name in self.by_name:
                    on_compiled(program.name)
                else:
                    futures[pool.submit(self._compile, program)] = program.name
            try:
                for future in as_completed(futures):
                    self.by_name[futures[future]] = future.result()
                    on_compiled(futures[future])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # no compilation starts after an error or an interrupt
                raise

    def _compile(self, program: Program) -> Any:
        with COMPILE_TIMES.compiling(program.name):
            return self._compiler(program)

    def freeze(self) -> None:
        """Make every program that was not compiled an error from now on (`FrozenBucketError`)."""
        self._is_frozen = True
