"""Adapters without files: their content follows from their path."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from hashlib import blake2b

import numpy as np

from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.engine.inputs.request_adapters import Adapters
from jaxserve.lora.adapter_store import AdapterStore
from jaxserve.lora.packed_adapter import PackedAdapter

MAX_PAGES = 4
UNREADABLE = "/unreadable/"  # how the paths of adapters begin that cannot be read a second time


@cache
def fake_packed(path: str) -> PackedAdapter:
    """One to four pages, each of which two blocks of ranks name at least once."""
    digest = np.frombuffer(blake2b(path.encode(), digest_size=16).digest(), np.uint8).astype(np.float32)
    num_pages = 1 + int(digest[0]) % MAX_PAGES
    content = np.add.outer(np.arange(num_pages, dtype=np.float32) * 1000, digest).reshape(1, num_pages, 1, 2, 8)
    where = 1 + np.arange(6).reshape(2, 1, 3) % num_pages
    where[1, :, 2] = 0
    return PackedAdapter(content, where.astype(np.int32))


def fake_adapter(number: int, *, is_unreadable: bool = False) -> Adapter:
    name = f"adapter {number}"
    return Adapter(number, LoRARequest(name, f"{UNREADABLE if is_unreadable else '/files/'}{name}"), 8)


class FakeReader:
    """A `read` of `AdapterStore`. files: what each path holds instead of its own content. num_reads: by path.

    before: called with the path before each read; it may raise, or wait.
    """

    def __init__(self, before: Callable[[str], None] = lambda path: None):
        self.before, self.files = before, dict[str, str]()
        self.num_reads = dict[str, int]()

    def __call__(self, request: LoRARequest) -> tuple[int, PackedAdapter]:
        path = request.lora_path
        self.num_reads[path] = self.num_reads.get(path, 0) + 1
        self.before(path)
        return 8, fake_packed(self.files.get(path, path))


def fake_adapters(
    *names: str, max_loras: int = 4, before: Callable[[str], None] = lambda path: None
) -> tuple[Adapters, FakeReader]:
    """Those of an engine, for requests; these names, at /NAME, are registered. before: see `FakeReader`."""
    reader = FakeReader(before)
    store = AdapterStore(reader, max_cpu_loras=16)
    for name in names:
        store.register(LoRARequest(name, f"/{name}"))
    return Adapters(store, max_loras), reader


class FakeAdapters:
    """An `AdapterSource` without threads: each has been read after three looks for errors of any, and at most
    `max_resident` are in memory.

    adapters: by id. waiting, pins: requests, by id. num_reads, num_failed: so far. num_crowded: looks at those for
    which there was no room.
    """

    def __init__(self, num_adapters: int = 12, max_resident: int = 6, num_unreadable: int = 0):
        ids = range(1, num_adapters + num_unreadable + 1)
        self.adapters = {i: fake_adapter(i, is_unreadable=i <= num_unreadable) for i in ids}
        self.max_resident = max_resident
        self.waiting, self.pins = Counter[int](), Counter[int]()
        self.num_reads = self.num_failed = self.num_crowded = 0
        self._resident = list[int]()  # the least recently used first
        self._looks = dict[int, int]()  # those that are being read
        self._errors = set[int]()

    def expect(self, adapter_id: int) -> None:
        self.waiting[adapter_id] += 1

    def forgo(self, adapter_id: int) -> None:
        self.waiting[adapter_id] -= 1
        assert self.waiting[adapter_id] >= 0

    def prepare(self, adapter_id: int) -> bool:
        if adapter_id in self._resident:
            self._resident.remove(adapter_id)
            self._resident.append(adapter_id)
            self.pins[adapter_id] += 1
            return True
        if adapter_id not in self._looks and adapter_id not in self._errors and self._make_room():
            self._looks[adapter_id] = 0
        return False

    def lacks_room(self, adapter_id: int) -> bool:
        lacks = not (adapter_id in self._resident or adapter_id in self._looks or adapter_id in self._errors)
        self.num_crowded += lacks
        return lacks

    def take_error(self, adapter_id: int) -> str | None:
        self._read()
        if adapter_id not in self._errors:
            return None
        self._errors.remove(adapter_id)
        self.num_failed += 1
        return "the disk is gone"

    def packed(self, adapter_id: int) -> PackedAdapter:
        assert self.pins[adapter_id], "an adapter is used that is not pinned"
        return fake_packed(self.adapters[adapter_id].request.lora_path)

    def unpin(self, adapter_id: int) -> None:
        self.pins[adapter_id] -= 1
        assert self.pins[adapter_id] >= 0

    def is_empty(self) -> bool:
        return not (self.waiting.total() or self.pins.total())

    def _read(self) -> None:
        for adapter_id in list(self._looks):
            self._looks[adapter_id] += 1
            if self._looks[adapter_id] == 3:
                del self._looks[adapter_id]
                self.num_reads += 1
                if self.adapters[adapter_id].request.lora_path.startswith(UNREADABLE):
                    self._errors.add(adapter_id)
                else:
                    self._resident.append(adapter_id)

    def _make_room(self) -> bool:
        if len(self._resident) + len(self._looks) < self.max_resident:
            return True
        idle = next((i for i in self._resident if not self.pins[i]), None)
        if idle is not None:
            self._resident.remove(idle)
        return idle is not None
