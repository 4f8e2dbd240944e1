"""Host: `AdapterGate`: requests wait until their adapter is in host memory, and keep it there until they have ended.

request ──▶ being read ──▶ pinned ─────────────────────────────────▶ unpinned
                           waiting, running, preempted, running …    all samples have ended
"""

from collections.abc import Iterable
from typing import Protocol

from jaxserve.core.request import Request
from jaxserve.lora.packed_adapter import PackedAdapter


class AdapterSource(Protocol):
    """Adapters in host memory (`jaxserve.lora.adapter_store`), by their ids. No method waits."""

    def expect(self, adapter_id: int) -> None:
        """A request waits for it, until `forgo`."""
        ...

    def forgo(self, adapter_id: int) -> None:
        """A request that waited has it prepared, or has ended."""
        ...

    def prepare(self, adapter_id: int) -> bool:
        """Whether it is in host memory; then it is pinned there once more. Else it is being read, or will be when there
        is room."""
        ...

    def lacks_room(self, adapter_id: int) -> bool:
        """Whether `prepare` waits until another adapter is unpinned."""
        ...

    def take_error(self, adapter_id: int) -> str | None:
        """Why it cannot be prepared; None: it can. The next `prepare` tries again."""
        ...

    def packed(self, adapter_id: int) -> PackedAdapter:
        """The content of a pinned one."""
        ...

    def unpin(self, adapter_id: int) -> None:
        """What has prepared it needs it no more."""
        ...


class AdapterGate:
    """Where host memory has no room, requests get it in the order in which they ask: else those whose adapter is always
    in use would keep the others out for ever."""

    def __init__(self, source: AdapterSource):
        self._source = source
        self._waiting, self._pinning = set[str](), set[str]()  # ids of requests
        self._lacks_room = False  # for a request that has asked before in this round

    def begin_round(self) -> None:
        """All requests that wait ask again, in their order."""
        self._lacks_room = False

    def expect(self, request: Request) -> None:
        """A new request, which waits for its adapter until that is prepared, or until `drop`."""
        request_id = request.request_id
        if request.adapter is not None and request_id not in self._waiting and request_id not in self._pinning:
            self._waiting.add(request_id)
            self._source.expect(request.adapter.adapter_id)

    def prepare(self, request: Request) -> bool:
        """Whether a request can begin: its adapter is in host memory, and stays there until `drop`."""
        if request.adapter is None or request.request_id in self._pinning:
            return True
        adapter_id = request.adapter.adapter_id
        if self._lacks_room:
            return False
        if self._source.prepare(adapter_id):
            self._pinning.add(request.request_id)
            self._forgo(request.request_id, adapter_id)
            return True
        self._lacks_room = self._source.lacks_room(adapter_id)
        return False

    def take_errors(self, adapter_ids: Iterable[int]) -> dict[int, str]:
        """Why adapters that requests wait for cannot be read; each once."""
        found = ((adapter_id, self._source.take_error(adapter_id)) for adapter_id in set(adapter_ids))
        return {adapter_id: error for adapter_id, error in found if error is not None}

    def packed(self, adapter_id: int) -> PackedAdapter:
        """The content of an adapter that a request has prepared."""
        return self._source.packed(adapter_id)

    def drop(self, request: Request) -> None:
        """All samples of a request have ended."""
        if request.adapter is None:
            return
        self._forgo(request.request_id, request.adapter.adapter_id)
        if request.request_id in self._pinning:
            self._pinning.remove(request.request_id)
            self._source.unpin(request.adapter.adapter_id)

    def _forgo(self, request_id: str, adapter_id: int) -> None:
        if request_id in self._waiting:
            self._waiting.remove(request_id)
            self._source.forgo(adapter_id)
