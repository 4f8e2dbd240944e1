"""Host: `ResponseStore`: responses that clients asked to keep, in memory, up to a number of bytes."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import orjson

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.responses_api.input_items import Item

Key = tuple[str | None, str]
IS_OFF = "this server stores no responses (--response-store-bytes)"


class ResponseStore:
    """Each client sees its own: those that were made with its key. When the memory is full, the response that was not
    read for the longest time is dropped. May be used from several threads at once.

    max_bytes: of all responses and their items as JSON; 0: nothing is stored.
    """

    def __init__(self, max_bytes: int):
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._kept: OrderedDict[Key, tuple[bytes, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def check_room(self, items: Sequence[Item]) -> None:
        """Raises `ApiError` where a response to these items could not be stored."""
        if not self._max_bytes:
            raise ApiError(400, f"store=true: {IS_OFF}", param="store", code="unsupported_field")
        if len(orjson.dumps(items)) > self._max_bytes // 2:
            raise ApiError(400, "store=true: the conversation is too long to be stored", param="store")

    def put(self, client: str | None, response: dict[str, Any], items: Sequence[Item]) -> None:
        """items: what the response was made of, each with an id; the whole conversation."""
        key, kept = (client, response["id"]), (orjson.dumps(response), orjson.dumps(items))
        with self._lock:
            self._drop(key)
            self._kept[key] = kept
            self._num_bytes += _size(kept)
            while self._num_bytes > self._max_bytes:
                self._drop(next(iter(self._kept)))

    def response(self, client: str | None, response_id: str) -> dict[str, Any]:
        return orjson.loads(self._find(client, response_id)[0])

    def items(self, client: str | None, response_id: str) -> list[Item]:
        return orjson.loads(self._find(client, response_id)[1])

    def conversation(self, client: str | None, response_id: str) -> list[Item]:
        """The items that the response was made of, and its own."""
        response, items = map(orjson.loads, self._find(client, response_id))
        return [*items, *response["output"]]

    def delete(self, client: str | None, response_id: str) -> None:
        self._find(client, response_id)
        with self._lock:
            self._drop((client, response_id))

    def _find(self, client: str | None, response_id: str) -> tuple[bytes, bytes]:
        """Raises `ApiError` with status 404."""
        with self._lock:
            if (kept := self._kept.get((client, response_id))) is not None:
                self._kept.move_to_end((client, response_id))
                return kept
        reason = "" if self._max_bytes else f": {IS_OFF}"
        message = f"No response with the id {response_id[:200]!r} is stored{reason}"
        raise ApiError(404, message, code="response_not_found")

    def _drop(self, key: Key) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._num_bytes -= _size(kept)


def _size(kept: tuple[bytes, bytes]) -> int:
    return len(kept[0]) + len(kept[1])
