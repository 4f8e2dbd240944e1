"""A real HTTP server in a thread over any `LLM`, with real sockets and clients."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
import uvicorn

from jaxserve.engine.async_llm import AsyncLLM
from jaxserve.engine.llm import LLM
from jaxserve.server.app import make_app
from jaxserve.server.http.bounded_protocol import bounded
from jaxserve.server.server_config import ServerConfig
from jaxserve.server.server_state import ServerState

NAME = "fake"


@dataclass(frozen=True)
class Running:
    """A server and its engine. url: without a trailing slash."""

    url: str
    llm: LLM
    state: ServerState
    http_server: uvicorn.Server

    def openai(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=30)

    def http(self, **options: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=30, **options)

    def cut(self) -> None:
        """Cut all connections, like a network failure."""
        (loop,) = {server.get_loop() for server in self.http_server.servers}
        for connection in list(self.http_server.server_state.connections):
            loop.call_soon_threadsafe(connection.transport.abort)

    def post(self, path: str, body: Any, **options: Any) -> httpx2.Response:
        with self.http() as client:
            return client.post(path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        with self.http() as client:
            return client.get(path, **options)


@contextmanager
def running(llm: LLM, **options: Any) -> Iterator[Running]:
    """Serve `llm` on a free port of this machine; options: of `ServerConfig`."""
    config = ServerConfig(served_model_name=(NAME,), **options)
    state = ServerState(config, config.served_model_name)
    served = AsyncLLM.from_llm(llm)
    state.open(served.client)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(state),
            port=0,
            http=bounded(config),
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), name="test-server")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server has not started")
            threading.Event().wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(f"http://127.0.0.1:{port}", llm, state, server)
    finally:
        server.should_exit = True
        thread.join()
        asyncio.run(served.close())


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that another thread fulfills; fail after 15 seconds."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("the condition was not fulfilled")
