"""Wiring: `serve`: the life of a server process: listen, load the model, serve, drain, exit with a code."""

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
from jaxserve.engine.serving.engine_client import EngineClient
from jaxserve.server.app import make_app
from jaxserve.server.http.listener import Listener
from jaxserve.server.loading import start_loading
from jaxserve.server.model_names import check_modules, served_names
from jaxserve.server.server_config import ServerConfig
from jaxserve.server.server_state import ServerState, ServerStatus

log = logging.getLogger("jaxserve.server")
HEALTH_PERIOD_S = 1.0  # between two checks for a stalled engine
SWITCH_INTERVAL_S = 0.001  # for which another thread may keep the event loop waiting; Python's default is 5 ms
LAST_RESPONSES_S = 1.0  # for responses to be sent after the engine failed, or after a second signal
CLOSE_TIMEOUT_S = 10.0  # for the current step, and for threads that encode for clients that have left


def serve(engine_config: EngineConfig, config: ServerConfig) -> int:
    """Serve until a signal or a failure. Returns the exit code: 0 after a signal, 2 for an error that the user can
    correct (options, model, address, TLS files), 1 for any other failure."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    names = served_names(config, engine_config.model)
    check_modules(config, names, is_enabled=engine_config.enable_lora)
    process = Process(engine_config, ServerState(config, names))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        exit_code = runner.run(process.run())
    process.has_ended.set()
    return exit_code


class Process:
    """One server process. It listens from start to end, so that /health always answers with its status."""

    def __init__(self, engine_config: EngineConfig, state: ServerState):
        self._engine_config, self._state, self._config = engine_config, state, state.config
        self._started_s = time.monotonic()
        self._stop, self.has_ended = asyncio.Event(), threading.Event()
        self._must_hurry = False
        self._exit_code = 0

    async def run(self) -> int:
        listener = Listener(make_app(self._state), self._config)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        listening = asyncio.create_task(listener.listen())
        listening.add_done_callback(lambda task: listener.should_exit or self._on_listener_failure(task))
        log.info("listening on %s; loading %s", listener.address, self._engine_config.model)
        engine = await self._load()
        if engine is not None:
            await self._serve(engine)
            self._exit_within(CLOSE_TIMEOUT_S)
            await engine.close()
        listener.should_exit = True
        await asyncio.wait((listening,))
        return self._exit_code

    async def _load(self) -> EngineClient | None:
        """The engine, or None if it could not be loaded; the failure is recorded."""
        adapters = [module.request for module in self._config.adapter_modules]
        loaded = start_loading(self._engine_config, adapters, warm_up=self._config.warm_up)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((loaded, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loaded.done():
            log.info("stopped while the model was being loaded")
            _exit_now(self._exit_code)  # a thread inside a compiler cannot be interrupted, and Python would wait for it
        try:
            return loaded.result()
        except (ConfigError, RequestError, CheckpointError, SourceError, OSError) as error:
            self._fail(str(error), 2)
        except BaseException as error:
            log.error("the model could not be loaded", exc_info=error)
            self._fail(f"the model could not be loaded: {error}", 1)
        return None

    async def _serve(self, engine: EngineClient) -> None:
        """Serve until the engine fails, or until a signal and then until all requests end or the timeout expires."""
        state, config = self._state, self._config
        state.open(engine)
        names = ", ".join(state.model_names)
        log.info("ready after %.1f s: %s, context %d", time.monotonic() - self._started_s, names, state.max_model_len)
        dying, stopping = asyncio.create_task(engine.wait_dead()), asyncio.create_task(self._stop.wait())
        watching = asyncio.create_task(self._log_stalls(engine))
        await asyncio.wait((dying, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not dying.done():
            state.status = ServerStatus.DRAINING
            log.info("draining: %d requests, at most %g s", state.num_active, config.shutdown_timeout)
            until_s = time.monotonic() + config.shutdown_timeout
            while state.num_active and time.monotonic() < until_s and not self._must_hurry and not dying.done():
                await asyncio.sleep(0.05)
            if state.num_active and not dying.done():
                log.warning("%d requests are aborted", state.num_active)
        if dying.done():
            self._fail(str(dying.result()), 1)
            await asyncio.sleep(LAST_RESPONSES_S)
        for task in (dying, stopping, watching):
            task.cancel()

    async def _log_stalls(self, engine: EngineClient) -> None:
        """Log the stack of every thread once per stall."""
        was_stalled = False
        while True:
            await asyncio.sleep(HEALTH_PERIOD_S)
            stalled_s = engine.health().stalled_s
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
            self._exit_within(LAST_RESPONSES_S)

    def _exit_within(self, seconds: float) -> None:
        """Exit without cleaning up if the process has not ended by then: a step that hangs cannot be interrupted."""

        def wait() -> None:
            if not self.has_ended.wait(seconds):
                log.warning("shutdown did not complete in time; exiting without it")
                _exit_now(self._exit_code)

        threading.Thread(target=wait, name="jaxserve-end", daemon=True).start()

    def _on_listener_failure(self, listening: asyncio.Task[None]) -> None:
        """Without a listener no request can be answered: the process ends."""
        error = None if listening.cancelled() else listening.exception()
        self._fail(f"the server has stopped listening: {error!r}", 1)
        self._must_hurry = True
        self._stop.set()

    def _fail(self, reason: str, exit_code: int) -> None:
        log.error("%s", reason)
        self._state.status, self._exit_code = ServerStatus.DEAD, exit_code


def _exit_now(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
