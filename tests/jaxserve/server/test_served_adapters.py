"""Adapters as models: every endpoint takes one by its name, and no other request is affected."""

import json
import threading
import time

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.lora_modules import LoraModule
from jaxserve.server.model_names import check_modules
from jaxserve.server.server_config import ServerConfig
from jaxserve.server.server_state import ServerState
from tests.support.fakes.fake_adapters import fake_adapters
from tests.support.fakes.fake_llm import all_pages_are_back, fake_llm
from tests.support.serving.http_server import NAME, running, until

MESSAGES = [{"role": "user", "content": "hi"}]
BODIES = {
    "/v1/completions": {"prompt": "x", "max_tokens": 2},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/responses": {"input": "x", "max_output_tokens": 2},
    "/v1/embeddings": {"input": ["x", "y"]},
    "/v1/score": {"text_1": "x", "text_2": "y"},
    "/v1/rerank": {"query": "x", "documents": ["y"]},
    "/invocations": {"prompt": "x", "max_tokens": 2},
}
MODULE = '{"name": "org/clerk", "path": "/org/clerk", "base_model_name": "other"}'


@pytest.fixture(scope="module")
def server():
    adapters, _ = fake_adapters("poet", "org/clerk")
    with running(fake_llm(adapters=adapters), log_requests=True, lora_modules=(MODULE,)) as server:
        yield server
    assert all_pages_are_back(server.llm)


@pytest.fixture
def names(server, monkeypatch):
    """The adapter's name of each request that the engine gets."""
    found, outputs = [], server.llm._outputs
    add = outputs.add

    def note(request):
        found.append(request.adapter and request.adapter.name)
        return add(request)

    monkeypatch.setattr(outputs, "add", note)
    return found


@pytest.mark.parametrize("path", BODIES)
def test_the_model_s_name_selects_an_adapter(server, names, path):
    for model in ("poet", "org/clerk"):
        answer = server.post(path, {**BODIES[path], "model": model})
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == model
        assert set(names) == {model}
        names.clear()
    for body in (BODIES[path], {**BODIES[path], "model": NAME}):
        assert server.post(path, body).json()["model"] == NAME
    assert set(names) == {None}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
def test_streams_run_with_their_adapter(server, names, path):
    answer = server.post(path, {**BODIES[path], "model": "poet", "stream": True})
    assert '"model":"poet"' in answer.text
    assert names == ["poet"]


@pytest.mark.parametrize("path", BODIES)
def test_lora_path_is_an_adapter_s_name_next_to_the_model_s(server, names, path):
    body = {**BODIES[path], "lora_path": "poet"}
    for model in ({}, {"model": NAME}, {"model": "poet"}):
        answer = server.post(path, body | model)
        assert (answer.status_code, answer.json()["model"]) == (200, "poet"), answer.text
    assert set(names) == {"poet"}
    refused = {
        (404, "lora_path"): {"lora_path": "/poet"},
        (400, "lora_path"): {"model": "org/clerk"},
        (404, "model"): {"model": "unknown"},
    }
    for (status, param), fields in refused.items():
        answer = server.post(path, body | fields)
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert server.post(path, body | {"lora_path": NAME}).status_code == 400
    assert server.post(path, body | {"lora_path": ["poet"]}).status_code == 400


def test_an_unknown_name_is_not_found(server):
    error = server.post("/v1/completions", {"prompt": "x", "model": "unknown"})
    assert (error.status_code, error.json()["error"]["code"]) == (404, "model_not_found")


def test_other_servers_fields_for_adapters_say_what_to_use(server):
    for name, value in {"lora": [{"id": 0, "scale": 1.0}], "lora_request": {"lora_name": "poet"}}.items():
        error = server.post("/v1/completions", {"prompt": "x", name: value}).json()["error"]
        assert (error["param"], error["code"]) == (name, "unsupported_field")
        assert "name the adapter as the model" in error["message"]
    assert server.post("/v1/completions", {"prompt": "x", "lora": [], "max_tokens": 1}).status_code == 200


def test_models_lists_adapters_with_path_and_parent(server):
    listed = {model["id"]: model for model in server.get("/v1/models").json()["data"]}
    assert list(listed) == [NAME, "poet", "org/clerk"]
    assert (listed[NAME]["root"], listed[NAME]["parent"]) == (NAME, None)
    assert (listed["poet"]["root"], listed["poet"]["parent"]) == ("/poet", NAME)
    assert server.get("/v1/models/org/clerk").json() == listed["org/clerk"]
    assert server.get("/v1/models/unknown").status_code == 404
    with server.openai() as client:
        assert [model.id for model in client.models.list()] == list(listed)


def test_tokens_are_those_of_the_model(server):
    assert server.post("/tokenize", {"prompt": "x", "model": "poet"}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": [120], "model": "poet"}).json() == {"prompt": "x"}


def test_the_log_names_the_adapter(server, caplog):
    caplog.set_level("INFO", "jaxserve.requests")
    server.post("/v1/completions", {**BODIES["/v1/completions"], "model": "poet"})
    until(lambda: "poet" in [json.loads(record.message)["model"] for record in caplog.records])


def labels(server):
    (line,) = [each for each in server.get("/metrics").text.splitlines() if each.startswith("vllm:lora_requests_info{")]
    pairs = (pair.split("=") for pair in line.partition("{")[2].partition("}")[0].replace('",', '"\n').splitlines())
    return {name: value.strip('"') for name, value in pairs}


def test_metrics_name_the_adapters_that_run_and_wait():
    names = ("poet", "clerk", "cook")
    adapters, _ = fake_adapters(*names, max_loras=3)
    llm = fake_llm(adapters=adapters, max_num_seqs=2)
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: time.sleep(0.01) or collect(ticket)
    with running(llm) as server:
        idle = {"max_lora": "3", "running_lora_adapters": "", "waiting_lora_adapters": ""}
        assert idle.items() <= labels(server).items()

        body = {"prompt": "x", "max_tokens": 80, "ignore_eos": True}
        bodies = [{**body, "model": name} for name in names]
        asking = [threading.Thread(target=server.post, args=("/v1/completions", each)) for each in bodies]
        for thread in asking:
            thread.start()
        until(lambda: split(labels(server), "running") | split(labels(server), "waiting") == set(names))
        busy = labels(server)
        for thread in asking:
            thread.join()
        assert len(split(busy, "running")) <= 2
        counts = {
            line.partition('place="')[2].partition('"')[0]: float(line.rpartition(" ")[2])
            for line in server.get("/metrics").text.splitlines()
            if line.startswith("jaxserve:lora_adapters{")
        }
        assert counts == {"registered": 3, "host": 3, "device": 3}
        until(lambda: idle.items() <= labels(server).items())


def split(found, state):
    return {name for name in found[f"{state}_lora_adapters"].split(",") if name}


def test_modules_are_read_in_vllm_s_forms():
    config = ServerConfig(
        lora_modules=("poet=/models/a=b", '{"name": "clerk", "path": "org/x", "base_model_name": "base"}')
    )
    assert config.adapter_modules == [
        LoraModule(LoRARequest("poet", "/models/a=b")),
        LoraModule(LoRARequest("clerk", "org/x"), "base"),
    ]
    check_modules(config, ("base",), is_enabled=True)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ("poet", "name=path"), ("=x", "lora_name"), ("x=", "lora_path"), ("{", "not JSON"),
        ('{"name": "a"}', "lora_path"),
        ('{"name": "a", "path": "b", "rank": 4}', "rank"), ('{"name": "a", "path": "b", "base_model_name": 1}', "text"),
        (("a=b", "a=c"), "twice"), (7, "lora_modules"),
        ("a,b=x", "comma"), ("a\x07=x", "control"), ('{"name": "a\\n", "path": "b"}', "control"),
        ("\udcff=x", "UTF-8"), ("a=\udcff", "UTF-8"), ('{"name": "a", "path": "\\ud800"}', "UTF-8"),
    ],
)  # fmt: skip
def test_bad_modules_are_refused(modules, message):
    with pytest.raises(ConfigError, match=message) as caught:
        ServerConfig(lora_modules=modules)
    assert caught.value.param == "lora_modules"


def test_modules_must_fit_the_server():
    for module, is_enabled, message in (
        ("a=b", False, "--enable-lora"),
        ("base=b", True, "give another"),
        ('{"name": "a", "path": "b", "base_model_name": "other"}', True, "other"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            check_modules(ServerConfig(lora_modules=(module,)), ("base",), is_enabled=is_enabled)
        assert caught.value.param == "lora_modules"


def test_a_module_s_base_is_the_parent(server, monkeypatch):
    monkeypatch.setattr(server.state, "model_names", (NAME, "other"))
    parents = {model["id"]: model["parent"] for model in server.get("/v1/models").json()["data"]}
    assert parents == {NAME: None, "other": None, "poet": NAME, "org/clerk": "other"}


def test_an_adapter_of_the_command_line_is_on_its_way_while_the_model_loads():
    """Clients try again after 503, and not after 404."""
    state = ServerState(ServerConfig(lora_modules=(MODULE,)), ("fake",))
    with pytest.raises(ApiError) as early:
        state.served_model("org/clerk")
    assert (early.value.status, "Retry-After" in early.value.headers) == (503, True)
    with pytest.raises(ApiError) as unknown:
        state.served_model("another")
    assert unknown.value.status == 404
