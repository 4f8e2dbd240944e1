"""Host: pages of adapters: they are taken when a sequence starts, after the pages of its prefix."""

from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.scheduler.memory.page_tables import allocate_pages
from jaxserve.scheduler.state import SchedulerState

PLACE = SAMPLING_INDEX["adapter"]


def load_adapter(state: SchedulerState, slot: int) -> None:
    """Copy a new slot's adapter to the device, unless it is there; enough pages must be idle."""
    place = int(state.slot_table.sampling[slot, PLACE])
    if place:
        assert state.adapters is not None
        if (count := state.adapters.num_unloaded_pages(place)) is not None:
            state.adapters.load(place, allocate_pages(state, count))
