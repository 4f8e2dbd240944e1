"""Records the processes that a test starts with `subprocess`, and their exit codes."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


class Children(list[subprocess.Popen[Any]]):
    """options: the arguments of each `Popen`. most_at_once: the highest number of processes not yet waited for."""

    def __init__(self):
        super().__init__()
        self.options: list[dict[str, Any]] = []
        self.most_at_once = 0

    @property
    def codes(self) -> list[int | None]:
        """The exit codes; None for a process that was not waited for."""
        return [child.returncode for child in self]


@contextmanager
def recorded() -> Iterator[Children]:
    """All processes started within the context, by any thread."""
    children = Children()

    class Recorded(subprocess.Popen):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options)
            children.append(self)
            children.options.append(options)
            children.most_at_once = max(children.most_at_once, children.codes.count(None))

    with patch.object(subprocess, "Popen", Recorded):
        yield children
