"""Host: `ReadingThreads`: a few threads that read files of adapters while the engine goes on."""

from collections import deque
from collections.abc import Callable
from threading import Lock, Thread

NUM_THREADS = 4  # a source that does not answer holds up the other adapters only where four of them are read from it


class ReadingThreads:
    """Each ends when there is nothing to read. They are daemons: a read that hangs does not keep the process alive."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tasks = deque[Callable[[], None]]()
        self._num_running = 0

    def run(self, task: Callable[[], None]) -> None:
        """Call `task`, which raises nothing, in one of the threads, in the order of these calls."""
        with self._lock:
            self._tasks.append(task)
            if self._num_running == NUM_THREADS:
                return
            self._num_running += 1
        Thread(target=self._work, name="jaxserve-adapters", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._num_running -= 1
                    return
                task = self._tasks.popleft()
            task()
