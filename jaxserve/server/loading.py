"""Wiring: `start_loading`: loads and compiles the model in a thread, while the event loop already answers /health."""

import asyncio
import gc
import threading
from collections.abc import Sequence

from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.engine.async_llm import AsyncLLM
from jaxserve.engine.llm import LLM
from jaxserve.engine.serving.engine_client import EngineClient


def start_loading(
    config: EngineConfig, adapters: Sequence[LoRARequest], *, warm_up: bool
) -> asyncio.Future[EngineClient]:
    """A future of the engine, which has these adapters, or of the error that prevented it. The loading thread cannot be
    interrupted."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[EngineClient] = loop.create_future()

    def load() -> None:
        try:
            engine = _load(config, adapters, warm_up)
        except BaseException as error:
            loop.call_soon_threadsafe(loaded.set_exception, error)
        else:
            loop.call_soon_threadsafe(loaded.set_result, engine)

    threading.Thread(target=load, name="jaxserve-load", daemon=True).start()
    return loaded


def _load(config: EngineConfig, adapters: Sequence[LoRARequest], warm_up: bool) -> EngineClient:
    llm = LLM.from_config(config, show_progress=True)

    def load_adapters() -> None:
        for adapter in adapters:
            llm.load_adapter(adapter)

    load_adapters()  # files that cannot be used are reported before shapes are compiled, which may take long
    if warm_up:
        llm.warm_up()
        load_adapters()  # reads nothing, unless memory ran out and the engine was built anew
    gc.collect()
    gc.freeze()  # loaded objects are permanent; a collection over all of them takes a third of a second
    return AsyncLLM.from_llm(llm).client
