"""Host: `Answer`: the base of the schemas that describe responses; `ErrorResponse` and `Usage`, which all share.

Responses are built as plain dictionaries, which is faster; tests hold every response against its schema.
"""

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """A JSON object of these fields alone; fields with a default may be absent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Error(Answer):
    """param: the field at fault. code: a word for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(Answer):
    """The body of every response with a status of 400 or above."""

    error: Error


class PromptUsage(Answer):
    """Tokens of a request that generates none."""

    prompt_tokens: int
    total_tokens: int


class PromptTokensDetails(Answer):
    """cached_tokens: found in the prefix cache."""

    cached_tokens: int


class CompletionTokensDetails(Answer):
    """reasoning_tokens: up to the end of the reasoning."""

    reasoning_tokens: int


class Usage(PromptUsage):
    """Tokens of a request that generates text. completion_tokens_details: where reasoning is told apart."""

    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | None = None
