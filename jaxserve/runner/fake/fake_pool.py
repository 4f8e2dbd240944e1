"""Host: `FakePool`, KV pages that record which prefix wrote them, so that paging errors are detected."""

import numpy as np

from jaxserve.core.device_ops import AdapterLoad, PageDrops, PageLoad, PageSave
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.core.step_plan import StepPlan
from jaxserve.kv.allocator import SCRATCH_PAGE
from jaxserve.runner.fake.fake_adapter import page_key, table_key
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, mix

# Pages, offsets and expected content of positions that a row's tokens see.
Seen = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


class PagingError(AssertionError):
    """A plan contradicts the pages or the slots' state."""


class FakePool:
    """Stores at each position a hash of the prefix that ends there, salted by KV group, in place of keys and values.

    num_sinks: of streaming sequences; None: there are none.
    """

    def __init__(self, groups: KVGroups, num_pages: int, num_sinks: int | None = None):
        self.groups, self.num_sinks = groups, num_sinks
        self._content = np.zeros((num_pages, groups.page_size), np.uint64)
        self._host: dict[int, np.ndarray] = {}  # content of the host tier's pages
        self._adapters: dict[int, tuple[np.ndarray, int]] = {}  # by place: table, and the key of what was loaded
        self._salts = np.array([mix(g + 1) for g in range(groups.num_groups)], np.uint64)

    def copy(self, src_pages: np.ndarray, dst_pages: np.ndarray) -> None:
        self._content[dst_pages] = self._content[src_pages]

    def copy_sinks(self, drops: PageDrops) -> None:
        """Copies are marked by the distance to which they are rotated."""
        content, n = self._content, self.num_sinks
        sinks = [_moved(content[page, :n], d) for page, d in zip(drops.sink_pages, drops.num_dropped, strict=True)]
        rests = content[drops.rest_pages, n:]
        for own, sink, rest in zip(drops.own_pages.tolist(), sinks, rests, strict=True):
            content[own, :n], content[own, n:] = sink, rest

    def transfer(self, transfer: PageSave | PageLoad) -> None:
        """Copy pages to host memory, or back."""
        for page, host_page in zip(transfer.pages.tolist(), transfer.host_pages.tolist(), strict=True):
            if isinstance(transfer, PageSave):
                self._host[host_page] = self._content[page].copy()
            elif host_page in self._host:
                self._content[page] = self._host[host_page]
            else:
                raise PagingError(f"page {host_page} of host memory is loaded but was never saved")

    def load_adapter(self, load: AdapterLoad) -> None:
        """Fill each page with a number for its part of the content."""
        for i, page in enumerate(load.pages.tolist()):
            self._content[page] = page_key(load.content[:, i])
        self._adapters[load.place] = load.table, table_key(load.table > 0, self._content[load.table[load.table > 0], 0])

    def adapter(self, plan: StepPlan, row: int) -> int:
        """The key of a row's adapter (`adapter_key`), `EMPTY_PREFIX` without one.

        Raises `PagingError` unless its place refers to one whose pages are what they were when it was loaded.
        """
        place = int(plan.sampling[row, SAMPLING_INDEX["adapter"]])
        if not place:
            return EMPTY_PREFIX
        where = f"step {plan.step_id}, slot {plan.slots[row]}, adapter in place {place}"
        if place not in self._adapters or not plan.has_adapters:
            raise PagingError(f"{where}: there is none")
        table, key = self._adapters[place]
        pages = self._content[table[table > 0]]
        if (pages != pages[:, :1]).any() or table_key(table > 0, pages[:, 0]) != key:
            raise PagingError(f"{where}: its pages have been overwritten")
        return key

    def write(self, plan: StepPlan, row: int, start: int, prefixes: np.ndarray) -> Seen:
        """Store the row's positions from `start` on in every group; prefixes: of all the sequence's positions.

        Returns the positions that the row's tokens see, for `check`.
        """
        seen: Seen = []
        for g, window in enumerate(self.groups.windows):
            num_dropped = 0
            if window is not None:
                first = max(0, start - window + 1)
            elif self.num_sinks is None:
                first = 0
            else:
                num_dropped = int(plan.first_pages[g, row]) * self.groups.page_size
                first = num_dropped and num_dropped + self.num_sinks
            pages, offsets = self._locate(plan, row, g, first, len(prefixes))
            content = prefixes[first:] ^ self._salts[g]
            self._content[pages[start - first :], offsets[start - first :]] = content[start - first :]
            seen.append((pages, offsets, content))
            if num_dropped:
                sinks = _moved(prefixes[: self.num_sinks] ^ self._salts[g], num_dropped)
                places = np.arange(len(sinks))
                seen.append((np.full_like(places, plan.tables[g][row, 0]), places, sinks))
        return seen

    def read(self, plan: StepPlan, row: int, prefixes: np.ndarray) -> None:
        """Fill in the prefixes of the positions before a row that reuses cached pages, as far as a group keeps them.

        Where groups disagree or the content is wrong, `check` fails or the drawn tokens differ.
        """
        for g in range(self.groups.num_groups):
            first = int(plan.first_pages[g, row]) * self.groups.page_size
            pages, offsets = self._locate(plan, row, g, first, len(prefixes))
            prefixes[first:] = self._content[pages, offsets] ^ self._salts[g]

    def check(self, plan: StepPlan, row: int, seen: Seen) -> None:
        """Raise `PagingError` unless every position that the row's tokens see has the expected content."""
        for pages, offsets, content in seen:
            wrong = np.flatnonzero(self._content[pages, offsets] != content)
            if len(wrong):
                where = f"step {plan.step_id}, slot {plan.slots[row]}, page {pages[wrong[0]]}"
                what = f"{len(wrong)} of the {len(content)} positions that the row sees"
                raise PagingError(f"{where}: {what} are not what the sequence wrote")

    def _locate(self, plan: StepPlan, row: int, g: int, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Pages and offsets of the positions [start, end) of a row in group g."""
        positions = np.arange(start, end)
        columns = positions // self.groups.page_size - plan.first_pages[g, row]
        table = plan.tables[g][row]
        if columns[0] < 0 or columns[-1] >= len(table):
            raise PagingError(f"step {plan.step_id}, row {row}, group {g}: [{start}, {end}) is not in the table")
        pages = table[columns]
        if (pages == SCRATCH_PAGE).any():
            raise PagingError(f"step {plan.step_id}, row {row}, group {g}: [{start}, {end}) lies in the scratch page")
        return pages, positions % self.groups.page_size


def _moved(content: np.ndarray, num_dropped: int) -> np.ndarray:
    return mix(content ^ np.uint64(num_dropped))
