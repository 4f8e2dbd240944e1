"""Host: the messages between an `EngineClient` and its `EngineThread`."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxserve.core.outputs import EmbeddingRequestOutput, RequestOutput
from jaxserve.core.request import Request

Output = RequestOutput | EmbeddingRequestOutput


@dataclass(frozen=True, slots=True)
class Add:
    """Add the requests of a call, which was admitted as a whole.

    keys: name the requests in `Abort` and `StepOutput`. first_arrival: arrival number of the first request, from which
    ids and seeds follow. wants_pieces: send what is new after each step; otherwise the whole at the end. is_normalized:
    scale embeddings to length 1.
    """

    keys: range
    requests: list[Request]
    first_arrival: int
    wants_pieces: bool
    is_normalized: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """End requests, wherever they are; no effect on those that have ended."""

    keys: list[int]


@dataclass(frozen=True, slots=True)
class Call:
    """Run a function between two steps; `future` gets its result or exception. No effect if it was cancelled before."""

    function: Callable[[], Any]
    future: Future[Any]


Command = Add | Abort | Call


class StepOutput(NamedTuple):
    """What a step brought for one request: a piece, the whole, or the exception that ends it."""

    key: int
    output: Output | Exception

    @property
    def is_last(self) -> bool:
        """Whether nothing follows for this request."""
        return isinstance(self.output, Exception) or self.output.finished
