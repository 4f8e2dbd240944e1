"""Host: `AdapterPlaces`: which adapters are on the device, and in which pages of the pool.

    place 1 ──▶ adapter 7    pages 12 40 41    two slots use it: its pages are referenced
    place 2 ──▶ adapter 3    pages 8 9         no slot: its pages are cached, until they or the place are needed
    place 3                                    free

Rows name places. One free list for KV and adapters: Sheng et al., "S-LoRA", section 5.1.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from jaxserve.core.device_ops import AdapterLoad
from jaxserve.core.options.lora_request import Adapter
from jaxserve.kv.allocator import PagePool
from jaxserve.scheduler.adapters.adapter_gate import AdapterGate


@dataclass(slots=True, eq=False)
class Place:
    """An adapter on the device. pages: None between `enter` and `load`. num_users: slots."""

    adapter: Adapter
    pages: np.ndarray | None = None  # int32[N]
    num_users: int = 0


class AdapterPlaces:
    """Places 1 .. num_places. An adapter that a slot uses keeps place and pages; others are evicted, the least recently
    used first.

    num_idle_pages: cached pages of the pool that hold adapters without users. num_loaded, num_evicted: adapters, so
    far.
    """

    def __init__(self, pool: PagePool, gate: AdapterGate, num_places: int):
        self._pool, self.gate = pool, gate
        self.num_places, self.num_idle_pages, self.num_loaded, self.num_evicted = num_places, 0, 0, 0
        self.places = dict[int, Place]()
        self._place_of = dict[int, int]()  # by adapter id
        self._free = list(range(num_places, 0, -1))
        self._idle = OrderedDict[int, None]()  # places without users, the least recently used first
        self._loads = list[AdapterLoad]()  # since the last plan

    @property
    def num_pages(self) -> int:
        """Pages that hold adapters, those with users among them."""
        return sum(map(self._num_pages, list(self.places)))

    def has_place(self, adapter: Adapter | None) -> bool:
        """Whether a sequence may start as far as places are concerned."""
        return adapter is None or adapter.adapter_id in self._place_of or bool(self._free or self._idle)

    def num_new_pages(self, adapter: Adapter | None) -> int:
        """Idle pages that the start of a sequence takes for its adapter."""
        if adapter is None:
            return 0
        place = self._place_of.get(adapter.adapter_id)
        if place is None:
            return self.gate.packed(adapter.adapter_id).num_pages
        return 0 if self.places[place].num_users else self._num_pages(place)

    def enter(self, adapter: Adapter) -> int:
        """One more slot uses the adapter; returns its place, of which there must be one."""
        number = self._place_of.get(adapter.adapter_id)
        if number is None:
            number = self._free.pop() if self._free else self._evict_next()
            self._place_of[adapter.adapter_id] = number
            self.places[number] = Place(adapter)
        place = self.places[number]
        if number in self._idle:
            assert place.pages is not None
            del self._idle[number]
            self._pool.retain(place.pages)
            self.num_idle_pages -= len(place.pages)
        place.num_users += 1
        return number

    def num_unloaded_pages(self, number: int) -> int | None:
        """Pages that a place which was entered needs for its adapter; None: it has them."""
        place = self.places[number]
        return self.gate.packed(place.adapter.adapter_id).num_pages if place.pages is None else None

    def load(self, number: int, pages: np.ndarray) -> None:
        """Copy the place's adapter into these pages, which were allocated for it, before the next step."""
        place = self.places[number]
        packed = self.gate.packed(place.adapter.adapter_id)
        self._pool.keep(pages)
        place.pages = pages
        self._loads.append(AdapterLoad(number, pages, packed.content, packed.table(pages)))
        self.num_loaded += 1

    def leave(self, number: int) -> None:
        """A slot that used the place has been released."""
        place = self.places[number]
        place.num_users -= 1
        if not place.num_users:
            assert place.pages is not None
            self._pool.release(place.pages)
            self.num_idle_pages += len(place.pages)
            self._idle[number] = None

    def num_left_by(self, numbers: Iterable[int]) -> int:
        """Pages that become idle when slots with these places are released."""
        counts = Counter(numbers)
        return sum(self._num_pages(n) for n, count in counts.items() if n and self.places[n].num_users == count)

    def evict(self, num_pages: int) -> None:
        """Free at least so many pages of adapters without users; there must be as many."""
        wanted = self._pool.num_free + num_pages
        while self._pool.num_free < wanted:
            self._free.append(self._evict_next())

    def take_loads(self) -> tuple[AdapterLoad, ...]:
        """The copies to make before the next step."""
        loads = tuple(self._loads)
        self._loads.clear()
        return loads

    def _num_pages(self, number: int) -> int:
        place = self.places.get(number)  # None while another thread asks for stats
        return 0 if place is None or place.pages is None else len(place.pages)

    def _evict_next(self) -> int:
        """The place of the adapter that was least recently used, and has no users."""
        number, _ = self._idle.popitem(last=False)
        place = self.places.pop(number)
        assert place.pages is not None
        del self._place_of[place.adapter.adapter_id]
        self._pool.drop(place.pages)
        self.num_idle_pages -= len(place.pages)
        self.num_evicted += 1
        # One that lost its slot in the step that brought it: its pages may get other content before that step.
        self._loads = [load for load in self._loads if load.place != number]
        return number
