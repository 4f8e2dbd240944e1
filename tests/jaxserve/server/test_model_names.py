"""The name under which clients see a model: never the folders in which it lies."""

import json
import logging
import os

import pytest

from jaxserve.cli import serve
from jaxserve.core.errors import ConfigError
from jaxserve.server.model_names import served_names
from jaxserve.server.server_config import ServerConfig
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, also the working folder, that holds a file and a folder."""
    (tmp_path / "secret" / "Llama-3.1-8B").mkdir(parents=True)
    (tmp_path / "secret" / "tiny.Q4_K_M.gguf").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("{home}/secret/tiny.Q4_K_M.gguf", "tiny.Q4_K_M"), ("secret/tiny.Q4_K_M.gguf", "tiny.Q4_K_M"),
        ("~/secret/tiny.Q4_K_M.gguf", "tiny.Q4_K_M"), ("{home}/secret/Llama-3.1-8B", "Llama-3.1-8B"),
        ("./secret/Llama-3.1-8B/", "Llama-3.1-8B"), ("secret/Llama-3.1-8B/..", "secret"),
        ("org/name", "org/name"), ("org/name/file.gguf", "org/name/file.gguf"), ("gs://bucket/llama", "gs://bucket/llama"),
        ("smollm2-135m-instruct", "smollm2-135m-instruct"), ("pypi:" + "x" * 5000, "pypi:" + "x" * 5000),
    ],
)  # fmt: skip
def test_a_path_s_name_is_its_last_part_and_any_other_stays_whole(home, model, name):
    assert served_names(ServerConfig(), model.format(home=home)) == (name,)


def test_names_that_are_given_count_alone(home):
    assert served_names(ServerConfig(served_model_name=("a", "b/c")), str(home / "secret")) == ("a", "b/c")


@pytest.mark.parametrize("names", [("a", "a"), ("a", "b", "a"), ("",)])
def test_a_name_is_given_once(names):
    with pytest.raises(ConfigError, match="served_model_name") as caught:
        ServerConfig(served_model_name=names)
    assert caught.value.param == "served_model_name"


def test_no_route_and_no_log_line_shows_the_path(home, caplog):
    caplog.set_level(logging.INFO, "jaxserve.requests")
    with running(fake_llm(), log_requests=True) as server:
        server.state.model_names = served_names(ServerConfig(), str(home / "secret" / "tiny.Q4_K_M.gguf"))
        whole = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        events = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "stream": True})
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "model": "tiny.Q4_K_M"}
        others = [server.post("/v1/chat/completions", chat), server.post("/v1/embeddings", {"input": "x"})]
        unknown = server.post("/v1/completions", {"prompt": "x", "model": str(home / "tiny")})
        gets = ("/v1/models", "/v1/models/tiny.Q4_K_M", "/metrics", "/tokenizer_info", "/health", "/", "/openapi.json")
        answers = [whole, events, *others, *(server.get(path) for path in gets)]
        assert {answer.status_code for answer in answers} == {200}
        assert unknown.status_code == 404
        (model,) = server.get("/v1/models").json()["data"]
    assert (model["id"], model["root"]) == ("tiny.Q4_K_M", "tiny.Q4_K_M")
    assert {answer.json()["model"] for answer in (whole, *others)} == {"tiny.Q4_K_M"}
    assert '"model":"tiny.Q4_K_M"' in events.text
    assert 'model_name="tiny.Q4_K_M"' in answers[6].text
    logged = [json.loads(record.message)["model"] for record in caplog.records if record.name == "jaxserve.requests"]
    assert logged == ["tiny.Q4_K_M"] * 4 + [None]
    assert not any("secret" in answer.text for answer in answers)


def test_a_path_that_is_no_text_has_a_name_that_is(home):
    (home / os.fsdecode(b"caf\xe9")).mkdir()
    (name,) = served_names(ServerConfig(), os.fsdecode(b"./caf\xe9"))
    assert name == "caf?"
    with pytest.raises(ConfigError, match=r"served_model_name=.caf.* is not UTF-8 text"):
        ServerConfig(served_model_name=(os.fsdecode(b"caf\xe9"),))


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_the_role_of_other_messages_is_none_of_answers(role):
    with pytest.raises(ConfigError, match=f"response_role='{role}' is the role of other messages"):
        ServerConfig(response_role=role)


@pytest.mark.parametrize("fields", [{"api_key": ("k", " k")}, {"admin_key": "k\n"}])
def test_a_key_that_headers_cannot_hold_is_refused(fields):
    with pytest.raises(ConfigError, match="white space, which headers lose"):
        ServerConfig(**fields)


def test_keys_from_the_environment_may_end_with_a_line_break(monkeypatch):
    monkeypatch.setenv("JAXSERVE_API_KEY", "secret\n")
    monkeypatch.setenv("JAXSERVE_ADMIN_KEY", "\n")
    assert serve._from_environment() == {"api_key": "secret"}
