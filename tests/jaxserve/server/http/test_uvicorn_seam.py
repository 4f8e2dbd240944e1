"""The hooks of uvicorn that the server overrides exist in the installed version, and uvicorn calls them."""

import asyncio
import inspect
from types import FunctionType

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from jaxserve.server.http.bounded_protocol import BoundedProtocol
from jaxserve.server.http.listener import Listener
from jaxserve.server.server_config import ServerConfig
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

# Own class → the class of uvicorn that it extends, and the members of that class that it overrides or calls.
HOOKS = {
    BoundedProtocol: (
        HttpToolsProtocol,
        {
            "connection_made": ["transport"],
            "connection_lost": ["exc"],
            "pause_writing": [],
            "resume_writing": [],
            "data_received": ["data"],
            "on_message_begin": [],
            "on_header": ["name", "value"],
            "on_headers_complete": [],
            "on_body": ["body"],
            "on_message_complete": [],
            "on_response_complete": [],
            "_start_asgi_task": ["cycle", "app"],
            "send_400_response": ["msg"],
        },
    ),
    Listener: (uvicorn.Server, {"capture_signals": [], "serve": ["sockets"], "shutdown": ["sockets"]}),
}
CALLED_BY_TRANSPORT = {"pause_writing", "resume_writing"}  # only when the client reads slowly
SIGNATURES = [(owner, name, HOOKS[owner][1][name]) for owner in HOOKS for name in HOOKS[owner][1]]


@pytest.mark.parametrize(("owner", "name", "parameters"), SIGNATURES, ids=[name for _, name, _ in SIGNATURES])
def test_a_hook_has_the_expected_parameters(owner, name, parameters):
    base, _ = HOOKS[owner]
    assert list(inspect.signature(getattr(base, name)).parameters) == ["self", *parameters]


@pytest.mark.parametrize("owner", HOOKS)
def test_every_overridden_method_is_listed(owner):
    base, hooks = HOOKS[owner]
    methods = {name for name, member in vars(owner).items() if isinstance(member, FunctionType)}
    assert {name for name in methods if hasattr(base, name) and name != "__init__"} <= set(hooks)


def test_the_attributes_that_are_read_exist():
    config = uvicorn.Config(lambda: None, http=BoundedProtocol, lifespan="off", ws="none")
    config.load()
    server = uvicorn.Server(config)
    loop = asyncio.new_event_loop()
    protocol = HttpToolsProtocol(config, server.server_state, {}, _loop=loop)
    assert {"transport", "loop", "cycle", "headers", "parser"} <= set(vars(protocol))
    assert protocol.cycle is None
    loop.close()
    parameters = inspect.signature(RequestResponseCycle).parameters
    cycle = RequestResponseCycle(**{**dict.fromkeys(parameters), "scope": {}, "flow": FlowControl(None)})
    assert {"response_complete", "disconnected", "message_event"} <= set(vars(cycle))


def test_uvicorn_calls_every_protocol_hook_during_a_request(monkeypatch):
    called = set()

    def recorded(name):
        method = getattr(BoundedProtocol, name)
        return lambda self, *args: called.add(name) or method(self, *args)

    names = {name for name in HOOKS[BoundedProtocol][1] if name in vars(BoundedProtocol)} - CALLED_BY_TRANSPORT
    for name in names:
        monkeypatch.setattr(BoundedProtocol, name, recorded(name))
    with running(fake_llm()) as server:
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status_code == 200
    assert called == names


def test_uvicorn_calls_every_listener_hook(monkeypatch):
    called = []

    def recorded(name):
        method = getattr(Listener, name)
        return lambda *args, **kwargs: called.append(name) or method(*args, **kwargs)

    for name in ("capture_signals", "shutdown"):
        monkeypatch.setattr(Listener, name, recorded(name))

    async def app(scope, receive, send):
        raise AssertionError("no request is sent")

    async def main():
        listener = Listener(app, ServerConfig(port=0))
        listening = asyncio.create_task(listener.listen())
        while not listener.started:
            await asyncio.sleep(0)
        listener.should_exit = True
        await listening

    asyncio.run(main())
    assert called == ["capture_signals", "shutdown"]
