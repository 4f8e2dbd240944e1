"""Host: `LoRARequest`, an adapter as callers name it, and `Adapter`, the same one once it is registered."""

from dataclasses import dataclass
from typing import Any

from jaxserve.core.errors import RequestError

MAX_NAME_CHARS = 256


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """An adapter (LoRA, Hu et al., arXiv 2106.09685) for the requests that it is given with.

    lora_name: by which outputs and the server name it. lora_path: a folder with adapter_config.json and
    adapter_model.safetensors, a Hugging Face id, or a gs:// address. lora_int_id: a number of the caller's own, which
    outputs repeat. vLLM's order (name, number, path) is taken, too.
    """

    lora_name: str
    lora_path: str
    lora_int_id: int | None = None

    def __post_init__(self) -> None:
        values: dict[str, Any] = {name: getattr(self, name) for name in ("lora_name", "lora_path", "lora_int_id")}
        if isinstance(values["lora_path"], int) and isinstance(values["lora_int_id"], str):
            values["lora_path"], values["lora_int_id"] = values["lora_int_id"], values["lora_path"]
            for name in ("lora_path", "lora_int_id"):
                object.__setattr__(self, name, values[name])
        for name in ("lora_name", "lora_path"):
            if not isinstance(values[name], str) or not values[name].strip():
                raise RequestError(f"{name}={values[name]!r} must be text", name)
        if len(self.lora_name) > MAX_NAME_CHARS:
            raise RequestError(f"lora_name has more than {MAX_NAME_CHARS} characters", "lora_name")
        number = values["lora_int_id"]
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise RequestError(f"lora_int_id={number!r} must be a positive integer, or left out", "lora_int_id")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A registered adapter. adapter_id: from 1, never used again, so that the KV of another one is never taken for
    its own. rank: the highest of its matrices."""

    adapter_id: int
    request: LoRARequest
    rank: int

    @property
    def name(self) -> str:
        return self.request.lora_name


class AdapterFailure(str):
    """A stop reason: why the adapter of a request could not be read. Servers tell it from other reasons by its type."""

    __slots__ = ()
