"""Host: the bodies of /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's fields and refusals."""

from typing import Annotated, Any

from pydantic import Field

from jaxserve.core.options.lora_request import MAX_NAME_CHARS
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.lora_modules import NAME_PATTERN
from jaxserve.server.openai.requests.base_body import Body

Name = Annotated[str, Field(max_length=MAX_NAME_CHARS, pattern=NAME_PATTERN)]


class LoadAdapterBody(Body):
    """load_inplace: replace another adapter of this name."""

    lora_name: Name | None = None
    lora_path: str | None = None
    load_inplace: bool = False

    def model_post_init(self, _: Any) -> None:
        for name in ("lora_name", "lora_path"):
            if not getattr(self, name):
                raise ApiError(400, "Both 'lora_name' and 'lora_path' must be provided.", param=name)


class UnloadAdapterBody(Body):
    """lora_int_id: the number of the adapter, instead of its name or with it."""

    lora_name: str | None = None
    lora_int_id: int | None = None

    def model_post_init(self, _: Any) -> None:
        if not self.lora_name and self.lora_int_id is None:
            raise ApiError(400, "either 'lora_name' and 'lora_int_id' needs to be provided.", param="lora_name")
