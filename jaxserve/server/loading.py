"""Wiring: a model loaded and compiled in a thread, while the event loop tells balancers that it is starting."""

import asyncio
import gc
import logging
import sys
import threading

from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.async_llm import AsyncLLM
from jaxserve.engine.llm import LLM

log = logging.getLogger("jaxserve.server")


def start_loading(config: EngineConfig, *, warm_up: bool) -> asyncio.Future[AsyncLLM]:
    """The engine, when it is ready, or what went wrong. The thread cannot be ended before."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[AsyncLLM] = loop.create_future()

    def work() -> None:
        try:
            llm = _load(config, warm_up)
        except BaseException as error:
            loop.call_soon_threadsafe(loaded.set_exception, error)
        else:
            loop.call_soon_threadsafe(loaded.set_result, llm)

    threading.Thread(target=work, name="jaxserve-load", daemon=True).start()
    return loaded


def _load(config: EngineConfig, warm_up: bool) -> AsyncLLM:
    show_progress = sys.stderr.isatty()
    llm = LLM.from_config(config, show_progress=show_progress)
    if warm_up:
        log.info("compiling for %d shapes of steps", len(llm.parts.buckets.all()))
        llm.warm_up(use_tqdm=show_progress)
    gc.collect()
    gc.freeze()  # what is loaded stays: to look through all of it now and then stops everything for a third of a second
    return AsyncLLM.from_llm(llm)
