"""Host: `PooledFields`: the fields shared by the bodies of endpoints that make vectors of texts."""

from pydantic import Field

from jaxserve.server.openai.requests.base_body import Body


class PooledFields(Body):
    """lora_path: SGLang's field for an adapter, by its name. pooling: the mean of a text's hidden states, or the last
    one. truncate_prompt_tokens: of each text."""

    model: str | None = None
    lora_path: str | None = None
    pooling: str = Field("mean", pattern="^(mean|last)$")
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    add_special_tokens: bool = True
