"""Wiring: `serve`, the life of a server process: it listens, loads, serves, drains, and says why it ends."""

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
import uvloop

from checkpoints.errors import CheckpointError, SourceError
from jaxserve.core.config import EngineConfig
from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.engine.async_llm import AsyncLLM
from jaxserve.engine.llm import LLM
from jaxserve.server.app import make_app
from jaxserve.server.bounded_http import bounded
from jaxserve.server.config import ServerConfig
from jaxserve.server.service import Service, State

log = logging.getLogger("jaxserve.server")
WATCH_S = 1.0  # between two looks at the engine
LAST_WORDS_S = 1.0  # for answers to go out after the engine has died


def serve(engine_config: EngineConfig, config: ServerConfig) -> int:
    """Serve until a signal or a fault ends it; the process's exit code: 0 after a signal, 2 for what the user can put
    right, 1 for anything else."""
    names = config.served_model_name or (engine_config.model,)
    with uvloop_runner() as runner:
        return runner.run(Process(engine_config, Service(config, names)).run())


@contextmanager
def uvloop_runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


class _Listener(uvicorn.Server):
    """uvicorn without its own handling of signals: it would stop to listen while requests are still served."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Process:
    """One server. Balancers see by /health what it does: it listens from the first moment to the last."""

    def __init__(self, engine_config: EngineConfig, service: Service):
        self._engine_config, self._service, self._config = engine_config, service, service.config
        self._started_s = time.monotonic()
        self._stop = asyncio.Event()
        self._must_hurry = False
        self._exit_code = 0

    async def run(self) -> int:
        config = self._config
        listener = _Listener(
            uvicorn.Config(
                make_app(self._service),
                http=bounded(config.max_header_bytes, config.receive_timeout_s),
                loop="none",
                lifespan="off",
                ws="none",
                access_log=False,
                log_config=None,
                timeout_keep_alive=config.keep_alive_timeout_s,
                timeout_graceful_shutdown=2,
                ssl_keyfile=config.ssl_keyfile,
                ssl_certfile=config.ssl_certfile,
                server_header=False,
            )
        )
        sockets = [_listen(config)]
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        listening = asyncio.create_task(listener.serve(sockets))
        log.info("listening on %s; loading %s", _address(config, sockets[0]), self._engine_config.model)
        llm = await self._load()
        if llm is not None:
            await self._serve(llm)
            await llm.close()
        listener.should_exit = True
        await listening
        if config.uds is not None:
            with suppress(OSError):
                os.unlink(config.uds)
        return self._exit_code

    async def _load(self) -> AsyncLLM | None:
        """The engine, in a thread of its own; None where it cannot be had, or a signal came first."""
        loop = asyncio.get_running_loop()
        loaded: asyncio.Future[AsyncLLM] = loop.create_future()

        def settle(llm: AsyncLLM | None, error: BaseException | None) -> None:
            if loaded.done():
                return
            if error is not None:
                loaded.set_exception(error)
            elif llm is not None:
                loaded.set_result(llm)

        def work() -> None:
            try:
                llm, error = _load(self._engine_config, self._config), None
            except BaseException as failure:
                llm, error = None, failure
            loop.call_soon_threadsafe(settle, llm, error)

        threading.Thread(target=work, name="jaxserve-load", daemon=True).start()
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((loaded, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loaded.done():
            log.info("stopped while the model was being loaded")
            _leave(0)  # a thread inside a compiler cannot be ended, and Python would not end before it
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
            service.state = State.DRAINING
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

    def _fail(self, reason: str, exit_code: int) -> None:
        log.error("%s", reason)
        self._service.state, self._service.reason, self._exit_code = State.DEAD, reason, exit_code


def _load(engine_config: EngineConfig, config: ServerConfig) -> AsyncLLM:
    show_progress = sys.stderr.isatty()
    llm = LLM.from_config(engine_config, show_progress=show_progress)
    if config.warm_up:
        log.info("compiling for %d shapes of steps", len(llm.parts.buckets.all()))
        llm.warm_up(use_tqdm=show_progress)
    gc.collect()
    gc.freeze()  # what is loaded stays: to look through all of it now and then stops everything for a third of a second
    return AsyncLLM.from_llm(llm)


def _listen(config: ServerConfig) -> socket.socket:
    """A bound socket. Raises OSError that says which address."""
    if config.uds is not None:
        path = Path(config.uds)
        if path.exists() and not path.is_socket():
            raise OSError(f"uds={config.uds}: something else than a socket is there")
        path.unlink(missing_ok=True)  # of a server that was killed
        made = socket.socket(socket.AF_UNIX)
        old = os.umask(0o177)  # only this user may connect
        try:
            made.bind(config.uds)
        finally:
            os.umask(old)
        return made
    family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as error:
        raise OSError(f"cannot listen on {config.host}:{config.port}: {error.strerror}") from None
    return made


def _address(config: ServerConfig, made: socket.socket) -> str:
    if config.uds is not None:
        return f"unix:{config.uds}"
    host, port = made.getsockname()[:2]
    return f"http{'s' if config.ssl_certfile else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
