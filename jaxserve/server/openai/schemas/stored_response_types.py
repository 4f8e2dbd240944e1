"""Host: schemas of what is stored of a response of /v1/responses besides itself."""

from typing import Literal

from jaxserve.server.openai.schemas.base import Answer
from jaxserve.server.openai.schemas.response_item_types import (
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    ReasoningText,
)


class InputText(Answer):
    type: Literal["input_text"]
    text: str


class StoredMessage(OutputItem):
    type: Literal["message"]
    role: Literal["user", "system", "developer"]
    content: list[InputText]


class StoredCallOutput(OutputItem):
    type: Literal["function_call_output"]
    call_id: str
    output: str


class SummaryText(Answer):
    type: Literal["summary_text"]
    text: str


class StoredReasoning(OutputItem):
    type: Literal["reasoning"]
    summary: list[SummaryText]
    content: list[ReasoningText]


class StoredItems(Answer):
    """The items that a response was made of, the conversation before them included. first_id, last_id: empty without
    items."""

    object: Literal["list"]
    data: list[StoredMessage | OutputMessage | OutputFunctionCall | StoredCallOutput | StoredReasoning]
    first_id: str
    last_id: str
    has_more: bool


class DeletedResponse(Answer):
    id: str
    object: Literal["response"]
    deleted: Literal[True]
