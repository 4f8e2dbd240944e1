"""Host: schemas of the items of a response of /v1/responses."""

from typing import Literal

from jaxserve.server.openai.schemas.base import Answer
from jaxserve.server.openai.schemas.generated import ContentLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Answer):
    """logprobs: where the request includes them."""

    type: Literal["output_text"]
    text: str
    annotations: list[None]
    logprobs: list[ContentLogprob]


class ReasoningText(Answer):
    type: Literal["reasoning_text"]
    text: str


class OutputItem(Answer):
    id: str
    status: ItemStatus


class OutputMessage(OutputItem):
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputText]


class OutputReasoning(OutputItem):
    """summary: always empty; the reasoning itself is the content."""

    type: Literal["reasoning"]
    summary: list[None]
    content: list[ReasoningText]


class OutputFunctionCall(OutputItem):
    """arguments: JSON, as text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


AnyOutputItem = OutputMessage | OutputReasoning | OutputFunctionCall
