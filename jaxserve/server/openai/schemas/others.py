"""Host: schemas of embeddings, models, tokens and the server's own state."""

from typing import Literal

from pydantic import ConfigDict

from jaxserve.server.openai.schemas.base import Answer, PromptUsage


class Embedding(Answer):
    """embedding: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingResponse(Answer):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PromptUsage


class Model(Answer):
    """root: the model's first name, or an adapter's path. parent: of an adapter, a name of its model. max_model_len:
    tokens of a prompt and its output together."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int


class ModelList(Answer):
    object: Literal["list"]
    data: list[Model]


class TokenizeResponse(Answer):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None


class DetokenizeResponse(Answer):
    prompt: str


class TokenizerInfo(Answer):
    """The special tokens are further fields, named as in a tokenizer's configuration."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    tokenizer_class: str
    model_max_length: int
    chat_template: str | None
    vocab_size: int
    eos_token: str | None


class LoadResponse(Answer):
    server_load: int


class VersionResponse(Answer):
    version: str


class SuccessResponse(Answer):
    success: Literal[True]
