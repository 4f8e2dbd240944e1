"""Host: `StreamEvents`: how a response is streamed; `ChunkEvents`: in chunks, as by completions and chats."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from jaxserve.core.outputs import RequestOutput
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.sse_response import DONE, sse_event
from jaxserve.server.openai.requests.generation_fields import SamplingFields
from jaxserve.server.server_config import ServerConfig


class StreamEvents(Protocol):
    """The server-sent events of one response, in the order of the methods; `failed` instead of what is left."""

    def first(self) -> Iterable[bytes]:
        """Before any output."""
        ...

    def part(self, prompt_index: int, output: RequestOutput) -> Iterable[bytes]: ...
    def last(self) -> Iterable[bytes]: ...
    def failed(self, error: ApiError) -> Iterable[bytes]: ...


class ChunkBuilder(Protocol):
    """Builds an endpoint's chunks, each with its `usage`."""

    def chunks(self, prompt_index: int, output: RequestOutput) -> Iterator[dict[str, Any]]: ...
    def last_chunk(self) -> dict[str, Any]: ...


class ChunkEvents:
    """Chunks, then one with usage if that was requested, then `[DONE]`. An error is an event, too.

    As in vLLM, `continuous_usage_stats` needs `include_usage`, and the server's option forces both.
    """

    def __init__(self, response: ChunkBuilder, body: SamplingFields, config: ServerConfig):
        options, is_forced = body.stream_options, config.enable_force_include_usage
        self._response = response
        self._has_usage = is_forced or (options is not None and options.include_usage)
        self._is_continuous = is_forced or (options is not None and options.continuous_usage_stats)

    def first(self) -> Iterable[bytes]:
        return ()

    def part(self, prompt_index: int, output: RequestOutput) -> Iterable[bytes]:
        for chunk in self._response.chunks(prompt_index, output):
            if not self._has_usage:
                del chunk["usage"]
            elif not self._is_continuous:
                chunk["usage"] = None
            yield sse_event(chunk)

    def last(self) -> Iterable[bytes]:
        if self._has_usage:
            yield sse_event(self._response.last_chunk())
        yield DONE

    def failed(self, error: ApiError) -> Iterable[bytes]:
        return (sse_event(error.body()), DONE)
