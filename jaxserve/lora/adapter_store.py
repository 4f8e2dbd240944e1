"""Host: `AdapterStore`: the registered adapters by name."""

from concurrent.futures import Future
from threading import Lock

from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.lora.host_adapters import HostAdapters, Read
from jaxserve.lora.packed_adapter import PackedAdapter


class AdapterStore(HostAdapters):
    """read, max_cpu_loras: as in `HostAdapters`; an adapter that is being registered comes on top of these. Its methods
    may be called by any thread, and wait for files; those that it inherits do not."""

    def __init__(self, read: Read, *, max_cpu_loras: int):
        super().__init__(read, max_cpu_loras=max_cpu_loras)
        self._names_lock = Lock()
        self._num_registered = 0
        self._names = dict[str, Adapter]()
        self._registering = dict[str, tuple[LoRARequest, Future[Adapter]]]()  # by name, with what becomes of it

    def register(self, request: LoRARequest) -> Adapter:
        """Read and check an adapter, and give it a name; waits for that. One that is known is returned as it is.

        Raises `RequestError` if another adapter has the name, or this one another number, or with the reason why the
        files cannot be used.
        """
        own = Future[Adapter]()
        with self._names_lock:
            known = self._names.get(request.lora_name)
            if known is not None:
                _check_same(request, known.request)
                return known
            first, future = self._registering.setdefault(request.lora_name, (request, own))
        if future is not own:
            _check_same(request, first)
            return future.result()
        try:
            own.set_result(self._add(request))
        except BaseException as error:
            own.set_exception(error)
        finally:
            with self._names_lock:
                del self._registering[request.lora_name]
        return own.result()

    def replace(self, request: LoRARequest) -> Adapter:
        """Read and check an adapter anew, under its name; requests that have the old one keep it."""
        return self._add(request)

    def unregister(self, name: str) -> Adapter:
        """Forget a name; raises `RequestError` if it is unknown. Requests that have the adapter keep it, and its memory
        returns when the last of them has ended."""
        with self._names_lock:
            adapter = self._names.pop(name, None)
            if adapter is None:
                raise RequestError(f"no adapter is named {name!r}; load it first", "lora_name")
        self.retire(adapter.adapter_id)
        return adapter

    def find(self, name: str) -> Adapter | None:
        """The adapter of this name."""
        return self._names.get(name)

    @property
    def adapters(self) -> list[Adapter]:
        """All that have a name, in the order of registration."""
        with self._names_lock:
            return list(self._names.values())

    def _add(self, request: LoRARequest) -> Adapter:
        rank, packed = self._read_files(request)
        with self._names_lock:
            self._num_registered += 1
            adapter = Adapter(self._num_registered, request, rank)
        self.add(adapter, packed)
        with self._names_lock:
            old = self._names.pop(request.lora_name, None)
            self._names[request.lora_name] = adapter
        if old is not None:
            self.retire(old.adapter_id)
        return adapter

    def _read_files(self, request: LoRARequest) -> tuple[int, PackedAdapter]:
        try:
            return self._read(request)
        except Exception as error:
            name, reason = request.lora_name, str(error) or type(error).__name__
            raise RequestError(f"adapter {name!r} cannot be loaded: {reason}", "lora_request") from error


def _check_same(request: LoRARequest, known: LoRARequest) -> None:
    name, number = request.lora_name, request.lora_int_id
    if request.lora_path != known.lora_path:
        raise RequestError(
            f"another adapter is named {name!r} (of {known.lora_path}); unload it first, or choose another name",
            "lora_request",
        )
    if number is not None and known.lora_int_id not in (None, number):
        raise RequestError(
            f"lora_int_id={number} is not the number that adapter {name!r} was loaded with ({known.lora_int_id}): "
            "leave it out, or unload the adapter first",
            "lora_int_id",
        )
