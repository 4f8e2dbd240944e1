"""Wiring: `serve`, the life of a server process: it listens, loads, serves, drains, and says why it ends."""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import time

import uvloop

from checkpoints.errors import CheckpointError, SourceError
from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.async_llm import AsyncLLM
from jaxserve.server.app import make_app
from jaxserve.server.http.listener import Listener
from jaxserve.server.loading import start_loading
from jaxserve.server.server_config import ServerConfig
from jaxserve.server.server_state import ServerState, ServerStatus

log = logging.getLogger("jaxserve.server")
WATCH_S = 1.0  # between two looks at the engine
SWITCH_S = 0.001  # that other threads may keep the event loop waiting; Python's own is five times that
LAST_WORDS_S = 1.0  # for answers to go out after the engine has died, or after a second signal
CLOSING_S = 10.0  # for a step, and for threads that encode what nobody waits for any more, to end


def serve(engine_config: EngineConfig, config: ServerConfig) -> int:
    """Serve until a signal or a fault ends it; the process's exit code: 0 after a signal, 2 for what the user can put
    right, 1 for anything else."""
    sys.setswitchinterval(SWITCH_S)
    names = config.served_model_name or (engine_config.model,)
    process = Process(engine_config, ServerState(config, names))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        exit_code = runner.run(process.run())
    process.has_ended.set()
    return exit_code


class Process:
    """One server. Balancers see by /health what it does: it listens from the first moment to the last."""

    def __init__(self, engine_config: EngineConfig, service: ServerState):
        self._engine_config, self._service, self._config = engine_config, service, service.config
        self._started_s = time.monotonic()
        self._stop, self.has_ended = asyncio.Event(), threading.Event()
        self._must_hurry = False
        self._exit_code = 0

    async def run(self) -> int:
        listener = Listener(make_app(self._service), self._config)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        listening = asyncio.create_task(listener.listen())
        listening.add_done_callback(lambda task: listener.should_exit or self._on_deaf(task))
        log.info("listening on %s; loading %s", listener.address, self._engine_config.model)
        llm = await self._load()
        if llm is not None:
            await self._serve(llm)
            self._leave_within(CLOSING_S)
            await llm.close()
        listener.should_exit = True
        await asyncio.wait((listening,))
        return self._exit_code

    async def _load(self) -> AsyncLLM | None:
        """None where it cannot be had."""
        loaded = start_loading(self._engine_config, warm_up=self._config.warm_up)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((loaded, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loaded.done():
            log.info("stopped while the model was being loaded")
            _leave(self._exit_code)  # a thread inside a compiler cannot be ended, and Python would not end before it
        try:
            return loaded.result()
        except (ConfigError, RequestError, CheckpointError, SourceError, OSError) as error:
            self._fail(str(error), 2)
        except BaseException as error:
            log.error("the model could not be loaded", exc_info=error)
            self._fail(f"the model could not be loaded: {error}", 1)
        return None

    async def _serve(self, llm: AsyncLLM) -> None:
        """Until a signal, then until all requests have ended or time is up; or until the engine dies."""
        service, config = self._service, self._config
        service.open(llm)
        names = ", ".join(service.names)
        log.info("ready after %.1f s: %s, context %d", time.monotonic() - self._started_s, names, service.max_model_len)
        dying, stopping = asyncio.create_task(llm.wait_dead()), asyncio.create_task(self._stop.wait())
        watching = asyncio.create_task(self._watch(llm))
        await asyncio.wait((dying, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not dying.done():
            service.state = ServerStatus.DRAINING
            log.info("draining: %d requests, %g s at most", service.num_active, config.shutdown_timeout)
            until_s = time.monotonic() + config.shutdown_timeout
            while service.num_active and time.monotonic() < until_s and not self._must_hurry and not dying.done():
                await asyncio.sleep(0.05)
            if service.num_active and not dying.done():
                log.warning("%d requests are aborted", service.num_active)
        if dying.done():
            self._fail(str(dying.result()), 1)
            await asyncio.sleep(LAST_WORDS_S)
        for task in (dying, stopping, watching):
            task.cancel()

    async def _watch(self, llm: AsyncLLM) -> None:
        """Write down once where all threads stand when no step ends."""
        was_stalled = False
        while True:
            await asyncio.sleep(WATCH_S)
            stalled_s = llm.health().stalled_s
            is_stalled = stalled_s > self._config.stall_timeout_s
            if is_stalled and not was_stalled:
                log.error("no step has ended for %.0f s; every thread's stack follows", stalled_s)
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
            was_stalled = is_stalled

    def _on_signal(self, number: int) -> None:
        self._must_hurry = self._stop.is_set()
        log.info("%s: %s", signal.Signals(number).name, "ending now" if self._must_hurry else "ending")
        self._stop.set()
        if self._must_hurry:
            self._leave_within(LAST_WORDS_S)

    def _leave_within(self, seconds: float) -> None:
        """Leave if the process has not ended by then: a step that hangs could not be ended, nor waited for."""

        def wait() -> None:
            if not self.has_ended.wait(seconds):
                log.warning("something does not end, and is left")
                _leave(self._exit_code)

        threading.Thread(target=wait, name="jaxserve-end", daemon=True).start()

    def _on_deaf(self, listening: asyncio.Task[None]) -> None:
        """Nobody can be answered any more."""
        error = None if listening.cancelled() else listening.exception()
        self._fail(f"the server has stopped listening: {error!r}", 1)
        self._must_hurry = True
        self._stop.set()

    def _fail(self, reason: str, exit_code: int) -> None:
        log.error("%s", reason)
        self._service.state, self._service.reason, self._exit_code = ServerStatus.DEAD, reason, exit_code


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
