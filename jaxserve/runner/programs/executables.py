"""Device: `Executables`, each program compiled once: on demand until `freeze`, never after it."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from jaxserve.core.errors import FrozenBucketError
from jaxserve.runner.programs.programs import Program

Compiler = Callable[[Program], Any]


class Executables:
    """Compiled programs by name.

    compiler: what makes an executable of a program.
    """

    def __init__(self, compiler: Compiler = Program.compile):
        self.by_name: dict[str, Any] = {}
        self._compiler = compiler
        self._is_frozen = False

    def get(self, name: str, program: Callable[[], Program]) -> Any:
        """The executable of this name; `program()` describes it, should it be needed for the first time."""
        if name not in self.by_name:
            if self._is_frozen:
                raise FrozenBucketError(
                    f"{name} was not compiled during warm-up and the engine is frozen; compiled are: "
                    f"{', '.join(sorted(self.by_name))}. Add the shape to the buckets, or do not freeze."
                )
            self.by_name[name] = self._compiler(program())
        return self.by_name[name]

    def compile_all(self, programs: list[Program], on_compiled: Callable[[str], None]) -> None:
        """Compile what is missing, as many programs at a time as there are processors: XLA works without the GIL.

        on_compiled: called in this thread with the name of each program.
        """
        with ThreadPoolExecutor(os.cpu_count(), "compile") as pool:
            futures = {}
            for program in programs:
                if program.name in self.by_name:
                    on_compiled(program.name)
                else:
                    futures[pool.submit(self._compiler, program)] = program.name
            try:
                for future in as_completed(futures):
                    self.by_name[futures[future]] = future.result()
                    on_compiled(futures[future])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # nothing new begins after an error or an interrupt
                raise

    def freeze(self) -> None:
        """From now on a program that was not compiled is an error that names it."""
        self._is_frozen = True
