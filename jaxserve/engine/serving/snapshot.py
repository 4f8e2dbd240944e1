"""Host: `Snapshot`: numbers of sequences and the state of each KV page between two steps."""

from dataclasses import dataclass

import numpy as np

from jaxserve.engine.loop.engine import Engine
from jaxserve.kv.allocator import SCRATCH_PAGE, PagePool
from jaxserve.scheduler.queue_limits import QueueLoad

PAGE_STATES = ("free", "cached", "held", "shared", "scratch")
FREE, CACHED, HELD, SHARED, SCRATCH = (np.uint8(state) for state in range(5))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy, which later steps do not change.

    num_running, num_waiting: sequences. pages: uint8[P], the state of each page as an index into `PAGE_STATES`: *held*
    by one sequence or *shared* by several, *cached* where only the prefix cache keeps it. num_host_pages: pages of
    evicted prefixes in host memory; max_host_pages: the capacity there.
    """

    num_running: int
    num_waiting: int
    pages: np.ndarray
    num_host_pages: int
    max_host_pages: int

    def count_pages(self) -> dict[str, int]:
        """The number of pages in each state."""
        counts = np.bincount(self.pages, minlength=len(PAGE_STATES)).tolist()
        return dict(zip(PAGE_STATES, counts, strict=True))


def snapshot(engine: Engine) -> Snapshot:
    """The state now; call it between two steps, in the thread that runs them."""
    state = engine.scheduler.state
    connector, load = state.connector, QueueLoad.of(state)
    return Snapshot(
        num_running=load.num_running,
        num_waiting=load.num_waiting,
        pages=_page_states(state.pool),
        num_host_pages=0 if connector is None else connector.num_used,
        max_host_pages=0 if connector is None else connector.num_pages,
    )


def _page_states(pool: PagePool) -> np.ndarray:
    everything = slice(None)
    references, is_kept = pool.references(everything), pool.is_kept(everything)
    states = np.where(references > 0, np.where(references > 1, SHARED, HELD), np.where(is_kept, CACHED, FREE))
    states[SCRATCH_PAGE] = SCRATCH
    return states
