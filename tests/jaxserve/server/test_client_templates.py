"""Chat templates of clients block neither the server nor other clients' chats."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jaxserve.core.errors import QueueFullError
from jaxserve.server.client_templates import MAX_PROCESSES, ClientTemplates
from jaxserve.text.client_template import ClientTemplate
from tests.jaxserve.text.test_client_template import ENDLESS
from tests.support.fakes.fake_llm import fake_llm
from tests.support.processes.children import recorded
from tests.support.serving.http_server import running

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
OWN = {**CHAT, "chat_template": "{{ bos_token }}{{ messages[0].content }}"}
NAMES = "loop range namespace caller varargs kwargs context environment undefined source options memory_limit asked"
VARIABLES = dict.fromkeys([*NAMES.split(), "__class__", "l_0_x", "a b", "1", "", "\ud800"], 1)


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(), trust_request_chat_template=True) as server:
        yield server


@pytest.fixture
def patience(server, monkeypatch):
    """A short time limit."""
    monkeypatch.setattr(server.state, "client_templates", ClientTemplates(time_limit_s=0.7))


def test_a_client_s_template_is_rendered_in_its_own_process(server):
    """Control: the model's template, and all templates without `client_templates`, are rendered in-process."""
    with recorded() as children:
        theirs = server.post("/v1/chat/completions", OWN).json()
        assert server.post(
            "/tokenize", {"messages": CHAT["messages"], "chat_template": OWN["chat_template"]}
        ).is_success
        assert children.codes == [0, 0]
        assert server.post("/v1/chat/completions", CHAT).is_success
        assert server.llm.render_chat(CHAT["messages"], chat_template=OWN["chat_template"])["prompt"] == "<|im_end|>hi"
        assert len(children) == 2
    assert theirs["usage"]["prompt_tokens"] == 3


def test_a_server_without_client_templates_trusts_templates(server, monkeypatch):
    monkeypatch.setattr(server.state, "client_templates", None)
    with recorded() as children:
        assert server.post("/v1/chat/completions", OWN).json()["usage"]["prompt_tokens"] == 3
    assert not children


@pytest.mark.usefixtures("patience")
def test_endless_templates_block_no_other_request(server):
    def ask(template):
        return server.post("/v1/chat/completions", {**CHAT, "chat_template": template})

    with recorded() as children, ThreadPoolExecutor(3 * MAX_PROCESSES) as pool:
        asked = [pool.submit(ask, ENDLESS["one step of hours"]) for _ in range(3 * MAX_PROCESSES)]
        while len(children) < MAX_PROCESSES:
            assert server.get("/health").is_success
        assert server.post("/v1/chat/completions", CHAT).is_success
        answers = [future.result() for future in asked]
    assert {400} <= {answer.status_code for answer in answers} <= {400, 429}
    assert {answer.json()["error"]["param"] for answer in answers} == {"chat_template"}
    assert all("took too long" in answer.text for answer in answers)
    assert all(answer.headers["Retry-After"] == "1" for answer in answers if answer.status_code == 429)
    assert set(children.codes) == {-signal.SIGKILL}
    assert children.most_at_once == MAX_PROCESSES
    assert server.post("/v1/chat/completions", OWN).is_success


def test_no_name_of_a_variable_breaks_the_rendering(server):
    """The result is the same as in this process."""
    template = OWN["chat_template"] + "{{ loop }}{{ range }}{{ namespace }}{{ x }}"
    options = {"chat_template_kwargs": VARIABLES}
    here = server.llm.render_chat(CHAT["messages"], chat_template=template, **options)
    assert here["prompt"].endswith("hi111")
    assert server.llm.render_chat(CHAT["messages"], chat_template=ClientTemplate(template), **options) == here
    for name in ("self", "messages", "tools", "add_generation_prompt"):
        answer = server.post("/v1/chat/completions", {**OWN, "chat_template_kwargs": {name: 1}})
        assert answer.status_code == 400, name
        assert answer.json()["error"]["param"] in ("messages", "chat_template_kwargs")


def test_a_disconnect_frees_no_process_before_the_rendering_has_ended():
    class Slow:
        may_end = asyncio.Event()

        async def render_chat(self, messages, **options):
            await self.may_end.wait()
            return messages

    async def leave_and_come():
        llm: Any = Slow()
        templates = ClientTemplates(time_limit_s=0.05)
        left = [asyncio.create_task(templates.render_chat(llm, "{{", "x")) for _ in range(MAX_PROCESSES)]
        await asyncio.sleep(0)
        for task in left:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*left, return_exceptions=True)
        )
        with pytest.raises(QueueFullError, match="other clients' chat templates took too long") as error:
            await templates.render_chat(llm, "{{", "y")
        assert (error.value.param, error.value.retry_after_s) == ("chat_template", 1)
        llm.may_end.set()
        await asyncio.sleep(0.01)
        assert await templates.render_chat(llm, "{{", "z") == "z"

    asyncio.run(leave_and_come())
