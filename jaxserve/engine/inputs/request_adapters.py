"""Host: `Adapters`: the adapters of an engine by name, for those who load them and for requests that name one."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.engine.inputs.per_prompt import as_list
from jaxserve.lora.adapter_store import AdapterStore

PARAM = "lora_request"


@dataclass(frozen=True, slots=True)
class Adapters:
    """store: None where the engine was built without enable_lora. max_loras: on the device at once."""

    store: AdapterStore | None = None
    max_loras: int = 0

    @property
    def is_enabled(self) -> bool:
        return self.store is not None

    @property
    def num_resident(self) -> int:
        """Adapters in host memory."""
        return 0 if self.store is None else self.store.num_resident

    def __iter__(self) -> Iterator[Adapter]:
        """In the order in which they were registered."""
        return iter([] if self.store is None else self.store.adapters)

    def find(self, name: str) -> Adapter | None:
        return None if self.store is None else self.store.find(name)

    def load(self, request: LoRARequest, *, in_place: bool = False) -> Adapter:
        """Register an adapter; blocks while its files are read and checked.

        in_place: another one of this name is replaced; requests that were admitted before keep it. Raises
        `RequestError` for files that cannot be served, and for a name that another path has unless in_place.
        """
        store, given = self._enabled(), cast(Any, request)
        if not isinstance(given, LoRARequest):
            raise RequestError(f"lora_request must be a LoRARequest, not {type(given).__name__}", PARAM)
        return store.replace(request) if in_place else store.register(request)

    def unload(self, name: str) -> Adapter:
        """Forget an adapter; requests that were admitted before keep it. Raises `RequestError` for an unknown name."""
        return self._enabled().unregister(name)

    def of(self, given: SequenceOf[LoRARequest | Adapter | None]) -> list[Adapter | None]:
        """The adapter of each request, registered where it is not yet; blocks and raises as `load` does. Raises
        `RequestError` for an `Adapter` of another engine, too."""
        for each in given:
            if isinstance(each, Adapter) and not self._enabled().knows(each):
                raise RequestError(
                    f"lora_request: adapter {each.name!r} is not one of this engine, or was unloaded long ago; give "
                    "its LoRARequest",
                    PARAM,
                )
        registered: dict[LoRARequest, Adapter] = {}
        for each in given:
            if isinstance(each, LoRARequest) and each not in registered:
                registered[each] = self._enabled().register(each)
        return [registered[each] if isinstance(each, LoRARequest) else each for each in given]

    def must_read(self, given: SequenceOf[LoRARequest | Adapter | None]) -> bool:
        """Whether `of` would read files."""
        requests = {each for each in given if isinstance(each, LoRARequest)}
        return any((known := self.find(each.lora_name)) is None or known.request != each for each in requests)

    def _enabled(self) -> AdapterStore:
        if self.store is None:
            raise RequestError(
                "lora_request: this engine was built without adapters; build it with enable_lora=True, or leave "
                "lora_request out",
                PARAM,
            )
        return self.store


def read_lora_requests(lora_request: Any, count: int, noun: str = "prompt") -> list[LoRARequest | Adapter | None]:
    """The adapter of each of `count` prompts, from one for all (or None) or a list with one or None per prompt."""
    listed = as_list(lora_request)
    listed = [lora_request] * count if listed is None else listed
    if len(listed) != count:
        raise RequestError(
            f"{count} {noun}s but {len(listed)} lora_request: give one, or a list with one or None per {noun}", PARAM
        )
    for each in listed:
        if not isinstance(each, LoRARequest | Adapter | None):
            raise RequestError(f"lora_request must be a LoRARequest or None, not {type(each).__name__}", PARAM)
    return listed
