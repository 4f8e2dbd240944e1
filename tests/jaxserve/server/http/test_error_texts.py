"""What error messages reveal: the server's own words as they are, and of other exceptions only a number in its log."""

import logging
import re

import pytest

from checkpoints.errors import CheckpointError
from jaxserve.core.errors import RequestError
from jaxserve.server.server_state import ServerStatus
from jaxserve.text.chat_template import ChatTemplate
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

PRIVATE = "/srv/models/secret-customer/model.gguf"
CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}


@pytest.fixture
def server():
    with running(fake_llm(template="{{ raise_exception('use /think/fast or 0xabcdef00') }}")) as server:
        yield server


def message_of(answer):
    return answer.json()["error"]["message"]


def test_own_messages_keep_paths_and_names(server):
    assert "/v1/responses/input" in message_of(server.post("/v1/responses/input", {}))
    unknown = server.post("/v1/completions", {"prompt": "x", "model": "org/sub/name"})
    assert "`org/sub/name`" in message_of(unknown)
    assert "use /think/fast or 0xabcdef00" in message_of(server.post("/v1/chat/completions", CHAT))


@pytest.mark.parametrize(
    "error", [OSError(2, "No such file", PRIVATE), CheckpointError(f"{PRIVATE}: is empty"), ValueError(PRIVATE)]
)
def test_other_exceptions_are_a_number_that_the_log_explains(server, error, monkeypatch, caplog):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(type(server.state.engine), "generate", fail)
    with caplog.at_level(logging.ERROR, "jaxserve.server"):
        for extra in ({}, {"stream": True}):
            answer = server.post("/v1/completions", {"prompt": "x", **extra})
            number = re.search(r"internal error (\w+)", message_of(answer))[1]
            assert answer.status_code == 500
            assert "secret" not in answer.text
            assert f"failure {number}" in caplog.text


def test_a_profile_that_cannot_be_written_names_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with running(fake_llm(), admin_key="admin", profile_dir=str(tmp_path / "file" / "trace")) as server:
        headers = {"Authorization": "Bearer admin"}
        answers = [server.post(f"/{verb}_profile", {}, headers=headers) for verb in ("start", "stop")]
    assert [answer.status_code for answer in answers] == [500, 400]  # nothing is being recorded
    assert str(tmp_path) not in "".join(answer.text for answer in answers)


def test_health_needs_no_key_and_tells_no_reason(server):
    server.state.status = ServerStatus.DEAD
    assert message_of(server.get("/health")) == "the server is dead; its log has the reason"


def test_template_errors_name_no_address():
    template = ChatTemplate("{{ raise_exception(messages[0].content.upper) }}")
    with pytest.raises(RequestError, match="method upper of str object") as caught:
        template.render([{"role": "user", "content": "x"}])
    assert "0x" not in str(caught.value)
