"""`Adapters` without files: paths say what reading them brings."""

from collections.abc import Callable
from itertools import count

from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.engine.inputs.adapters import Adapters

BAD = "/bad"  # a path that cannot be read
REASON = "/bad/adapter_config.json: no such file"


class FakeRegistry:
    """num_reads: of each path. on_read: called with each path that is read."""

    def __init__(self, on_read: Callable[[str], object] = lambda path: None):
        self.num_reads = dict[str, int]()
        self._by_name, self._ids, self._on_read = dict[str, Adapter](), count(1), on_read

    @property
    def adapters(self) -> list[Adapter]:
        return list(self._by_name.values())

    def find(self, name: str) -> Adapter | None:
        return self._by_name.get(name)

    def register(self, request: LoRARequest) -> Adapter:
        known = self.find(request.lora_name)
        if known is None:
            return self.replace(request)
        if known.request.lora_path != request.lora_path:
            raise RequestError(f"{request.lora_name} is the adapter at {known.request.lora_path}", "lora_request")
        return known

    def replace(self, request: LoRARequest) -> Adapter:
        path = request.lora_path
        self.num_reads[path] = 1 + self.num_reads.get(path, 0)
        self._on_read(path)
        if path.startswith(BAD):
            raise RequestError(REASON, "lora_request")
        self._by_name[request.lora_name] = adapter = Adapter(next(self._ids), request, 8)
        return adapter

    def unregister(self, name: str) -> Adapter:
        if name not in self._by_name:
            raise RequestError(f"no adapter is named {name!r}", "lora_name")
        return self._by_name.pop(name)


def fake_adapters(
    *names: str, max_loras: int = 4, on_read: Callable[[str], object] = lambda path: None
) -> tuple[Adapters, FakeRegistry]:
    """Adapters of these names, at /NAME, are registered."""
    registry = FakeRegistry(on_read)
    for name in names:
        registry.register(LoRARequest(name, f"/{name}"))
    return Adapters(registry, max_loras), registry
