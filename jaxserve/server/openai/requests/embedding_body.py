"""Host: the body of /v1/embeddings."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from jaxserve.server.openai.requests.base_body import Body
from jaxserve.server.openai.requests.text_inputs import Texts, as_list


class EmbeddingBody(Body):
    """input: text, token ids, or a list of either. encoding_format: numbers, or base64 of little-endian float32.
    dimensions: number of leading components kept, for models trained for it (Matryoshka)."""

    prompt_field: ClassVar[str] = "input"
    misplaced: ClassVar[Mapping[str, str]] = {"messages": "send texts as input", "prompt": "send input"}
    input: Texts
    model: str | None = None
    encoding_format: str = Field("float", pattern="^(float|base64)$")
    dimensions: int | None = Field(None, ge=1)
    pooling: str = Field("mean", pattern="^(mean|last)$")
    normalize: bool = True
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    add_special_tokens: bool = True

    @property
    def inputs(self) -> list[str] | list[list[int]]:
        """The request's inputs as a list."""
        return as_list(self.input)
