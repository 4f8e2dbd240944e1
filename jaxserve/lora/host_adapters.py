"""Host: `HostAdapters`: which of the registered adapters are in host memory.

    files ──▶ read, checked ──▶ host memory ──▶ pages of the pool, when a sequence needs it
                   ▲                 │ the one that was used least recently, and that no request pins
                   └── read again ◀──┘ once there are `max_cpu_loras`

Adapters are files, so what is dropped is read again. It must be what it was: cached prefixes hold KV that was computed
with it. (All adapters in host memory, the running ones on the device: Sheng et al., "S-LoRA", section 5.)
"""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.lora.host_adapter import HostAdapter
from jaxserve.lora.packed_adapter import PackedAdapter
from jaxserve.lora.reading_threads import ReadingThreads

Read = Callable[[LoRARequest], tuple[int, PackedAdapter]]
"""Reads and checks the files of an adapter: its rank and its content. Any exception says why it cannot be used."""

MAX_RETIRED = 1024  # adapters that are still served to requests which were made before they were retired
CHANGED = "its files are not those that were registered: register it again, in place of the old one"
GONE = "it was unloaded before this request began"


class HostAdapters:
    """An `AdapterSource` of the scheduler. read: is called by several threads at once. max_cpu_loras: adapters in host
    memory, those that are being read again included; those that are retired and have requests come on top of these.

    `expect` to `unpin` are of the engine's thread, which they never make wait; the others may be called by any thread.
    """

    def __init__(self, read: Read, *, max_cpu_loras: int):
        self._read, self._max_resident = read, max_cpu_loras
        self._lock = Lock()  # held for no longer than it takes to look something up
        self._threads = ReadingThreads()
        self._entries = dict[int, HostAdapter]()  # by adapter id
        self._retired = OrderedDict[int, None]()  # ids
        self._resident = OrderedDict[int, PackedAdapter]()  # by adapter id, the least recently used first
        self._num_reading = 0

    @property
    def num_resident(self) -> int:
        """Adapters in host memory."""
        return len(self._resident)

    def add(self, adapter: Adapter, packed: PackedAdapter) -> None:
        """A new adapter; its content is kept unless that would push out what a request needs or waits for."""
        digest = packed.digest
        with self._lock:
            self._entries[adapter.adapter_id] = HostAdapter(adapter, digest, packed.folder)
            if self._make_room(spares_awaited=True):
                self._resident[adapter.adapter_id] = packed

    def knows(self, adapter: Adapter) -> bool:
        """Whether it was added here; those that were retired are forgotten in the end."""
        entry = self._entries.get(adapter.adapter_id)
        return entry is not None and entry.adapter is adapter

    def retire(self, adapter_id: int) -> None:
        """The adapter gets no new requests; its memory returns when the last of those that have it has ended. Where
        none is known, one may be on its way: then the adapter is the next to be dropped."""
        with self._lock:
            self._retired[adapter_id] = None
            if adapter_id in self._resident:
                self._resident.move_to_end(adapter_id, last=False)
            self._forget_old()

    def expect(self, adapter_id: int) -> None:
        """A request waits for the adapter, until `forgo`. Errors from before concern others."""
        with self._lock:
            entry = self._entries.get(adapter_id)
            if entry is not None:
                entry.failure = entry.failure if entry.num_waiting else None
                entry.num_waiting += 1

    def forgo(self, adapter_id: int) -> None:
        """A request that waited has the adapter prepared, or has ended."""
        with self._lock:
            entry = self._entries.get(adapter_id)
            if entry is not None:
                entry.num_waiting -= 1
                self._drop_retired(entry)

    def prepare(self, adapter_id: int) -> bool:
        """Whether the adapter is in host memory; then it is pinned there once more. Else it is being read, or will be
        when there is room."""
        with self._lock:
            entry = self._entries.get(adapter_id)
            if entry is None:
                return False
            if adapter_id in self._resident:
                self._resident.move_to_end(adapter_id)
                entry.num_pins += 1
                return True
            if not entry.is_reading and entry.failure is None and self._make_room():
                entry.is_reading = True
                self._num_reading += 1
                self._threads.run(lambda: self._read_again(entry))
            return False

    def lacks_room(self, adapter_id: int) -> bool:
        """Whether `prepare` waits until another adapter is unpinned."""
        with self._lock:
            entry = self._entries.get(adapter_id)
            is_waiting = entry is not None and not entry.is_reading and entry.failure is None
            return is_waiting and adapter_id not in self._resident

    def take_error(self, adapter_id: int) -> str | None:
        """Why the adapter cannot be prepared; None: it can. The next `prepare` tries again."""
        with self._lock:
            entry = self._entries.get(adapter_id)
            if entry is None:
                return GONE
            failure, entry.failure = entry.failure, None
            return failure

    def packed(self, adapter_id: int) -> PackedAdapter:
        """The content of a pinned adapter."""
        return self._resident[adapter_id]

    def unpin(self, adapter_id: int) -> None:
        """A request that had the adapter prepared has ended."""
        with self._lock:
            entry = self._entries[adapter_id]
            entry.num_pins -= 1
            self._drop_retired(entry)

    def _read_again(self, entry: HostAdapter) -> None:
        """In a reading thread."""
        packed, failure = None, None
        try:
            _, packed = self._read(entry.request_again)
            failure = None if packed.digest == entry.digest else CHANGED
        except Exception as error:
            failure = str(error) or type(error).__name__
        with self._lock:
            entry.is_reading = False
            self._num_reading -= 1
            entry.failure = failure
            if packed is not None and failure is None:
                self._resident[entry.adapter.adapter_id] = packed
                self._drop_retired(entry)

    def _make_room(self, *, spares_awaited: bool = False) -> bool:
        """Whether there is memory for one more, once the least recently used one without a pin is dropped."""
        num_leaving = sum(self._entries[i].has_requests for i in self._retired if i in self._resident)
        if len(self._resident) - num_leaving + self._num_reading < self._max_resident:
            return True
        idle = next((i for i in self._resident if self._is_idle(i, spares_awaited)), None)
        if idle is None:
            return False
        del self._resident[idle]
        return True

    def _is_idle(self, adapter_id: int, spares_awaited: bool) -> bool:
        entry = self._entries[adapter_id]
        is_spared = spares_awaited or adapter_id in self._retired
        return not (entry.num_pins or (is_spared and entry.num_waiting))

    def _drop_retired(self, entry: HostAdapter) -> None:
        """Its memory returns once it has no requests."""
        adapter_id = entry.adapter.adapter_id
        if adapter_id in self._retired and not entry.has_requests:
            self._resident.pop(adapter_id, None)
            self._forget_old()

    def _forget_old(self) -> None:
        """Retired adapters whose requests have ended, the oldest first, as far as there are too many."""
        if len(self._retired) > MAX_RETIRED:
            unused = [i for i in self._retired if not (self._entries[i].has_requests or self._entries[i].is_reading)]
            for adapter_id in unused[: len(self._retired) - MAX_RETIRED]:
                del self._retired[adapter_id]
                del self._entries[adapter_id]
                self._resident.pop(adapter_id, None)
