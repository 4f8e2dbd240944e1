"""Host: the body of /v1/embeddings."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from jaxserve.server.openai.requests.pooled_fields import PooledFields
from jaxserve.server.openai.requests.text_inputs import Texts, as_list


class EmbeddingBody(PooledFields):
    """input: text, token ids, or a list of either. encoding_format: numbers, or base64 of little-endian float32.
    dimensions: number of leading components kept, for models trained for it (Matryoshka)."""

    prompt_field: ClassVar[str] = "input"
    misplaced: ClassVar[Mapping[str, str]] = {"messages": "send texts as input", "prompt": "send input"}
    input: Texts
    encoding_format: str = Field("float", pattern="^(float|base64)$")
    dimensions: int | None = Field(None, ge=1)
    normalize: bool = True

    @property
    def inputs(self) -> list[str] | list[list[int]]:
        """The request's inputs as a list."""
        return as_list(self.input)
