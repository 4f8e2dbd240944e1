"""Host: schemas of the events of a streamed response of /v1/responses."""

from typing import Literal

from jaxserve.server.openai.schemas.base import Answer
from jaxserve.server.openai.schemas.response_item_types import AnyOutputItem, OutputText, ReasoningText
from jaxserve.server.openai.schemas.response_types import ApiResponse


class EventTopLogprob(Answer):
    token: str
    logprob: float


class EventLogprob(EventTopLogprob):
    top_logprobs: list[EventTopLogprob]


class Event(Answer):
    """sequence_number: 0 for the first event of a stream, then one more each."""

    sequence_number: int


class ResponseStateEvent(Event):
    """The last event has one of the last three types."""

    type: Literal[
        "response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed"
    ]
    response: ApiResponse


class OutputItemEvent(Event):
    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: AnyOutputItem


class PieceEvent(Event):
    """About the item at `output_index`."""

    item_id: str
    output_index: int


class ContentPartEvent(PieceEvent):
    type: Literal["response.content_part.added", "response.content_part.done"]
    content_index: int
    part: OutputText | ReasoningText


class TextDeltaEvent(PieceEvent):
    type: Literal["response.output_text.delta"]
    content_index: int
    delta: str
    logprobs: list[EventLogprob]


class TextDoneEvent(PieceEvent):
    type: Literal["response.output_text.done"]
    content_index: int
    text: str
    logprobs: list[EventLogprob]


class ReasoningDeltaEvent(PieceEvent):
    type: Literal["response.reasoning_text.delta"]
    content_index: int
    delta: str


class ReasoningDoneEvent(PieceEvent):
    type: Literal["response.reasoning_text.done"]
    content_index: int
    text: str


class ArgumentsDeltaEvent(PieceEvent):
    type: Literal["response.function_call_arguments.delta"]
    delta: str


class ArgumentsDoneEvent(PieceEvent):
    type: Literal["response.function_call_arguments.done"]
    arguments: str


EVENTS: tuple[type[Event], ...] = (
    ResponseStateEvent,
    OutputItemEvent,
    ContentPartEvent,
    TextDeltaEvent,
    TextDoneEvent,
    ReasoningDeltaEvent,
    ReasoningDoneEvent,
    ArgumentsDeltaEvent,
    ArgumentsDoneEvent,
)
