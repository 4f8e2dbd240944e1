"""Conversations on the page: by keyboard, with settings, and during failures."""

import re
import time
from dataclasses import replace

import pytest

from jaxserve.server.openai.requests.generation_fields import MAX_STOPS
from jaxserve.server.server_state import ServerStatus
from tests.support.fakes.fake_llm import all_pages_are_back
from tests.support.serving.http_server import until
from tests.support.serving.web_page import CHAT, IS_DONE, answers, ask, bodies, press_button

STREAM_OPTIONS = {"include_usage": True, "continuous_usage_stats": True}


def test_an_answer_streams_in_and_equals_the_server_s(page, server):
    page.fill("#prompt", "a")
    page.press("Enter", shift=True)
    page.type("b")
    assert bodies(page) == []
    page.press("Enter")
    lengths = [page.wait("document.querySelector('.answer')?.textContent.length")]
    assert page.read("document.querySelector('.answer').ariaBusy") == "true"
    while not page.read(IS_DONE):
        lengths.append(page.read("document.querySelector('.answer').textContent.length"))
    assert len(set(lengths)) > 3
    (body,) = bodies(page)
    assert body["messages"] == [{"role": "user", "content": "a\nb"}]
    whole = server.post(CHAT, {**body, "stream": False, "stream_options": None}).json()
    assert answers(page) == [whole["choices"][0]["message"]["content"]]
    assert page.text(".assistant .note").startswith(f"{whole['usage']['completion_tokens']} tokens · first after ")
    assert page.read("document.activeElement.id") == "prompt"
    assert page.read("document.querySelector('#prompt').value") == ""
    assert page.read("document.querySelector('.answer').ariaLive") == "polite"


def test_the_model_s_output_is_shown_as_text_only(page):
    ask(page, "a")
    page.wait(IS_DONE)
    assert "<img" in answers(page)[0]
    assert page.read("document.querySelectorAll('.answer img, .answer b').length") == 0


@pytest.mark.parametrize("stop", ["Escape", "#halt"])
def test_stopping_keeps_the_text_and_frees_the_engine(page, server, stop):
    ask(page, "a")
    page.wait("document.querySelector('.answer').textContent.length > 3")
    page.press(stop) if stop == "Escape" else page.click(stop)
    page.wait(IS_DONE)
    assert page.text(".assistant .note") == "stopped"
    said = answers(page)[0]
    assert 3 < len(said) < 60
    until(lambda: all_pages_are_back(server.llm))
    assert answers(page) == [said]


def test_the_focus_stays_on_an_enabled_control(page):
    focused = "document.activeElement.id"
    ask(page, "a")
    page.wait("!document.querySelector('#halt').hidden")
    page.read("document.querySelector('#halt').focus()")
    page.press("Enter")
    page.wait(IS_DONE)
    assert page.read(focused) == "prompt"
    page.read("[...document.querySelectorAll('.idle button')].find((one) => one.textContent === 'Again').focus()")
    page.press("Enter")
    page.wait("!!document.querySelector('.busy')")
    assert page.read(focused) == "halt"
    page.wait(IS_DONE)
    assert page.read(focused) == "prompt"


def test_a_reload_keeps_the_part_of_an_answer_received_so_far(page, server):
    ask(page, "a")
    page.wait("document.querySelector('.answer').textContent.length > 3")
    page.open(f"{server.url}/")
    page.wait(IS_DONE)
    assert page.text(".assistant .note") == "stopped"
    assert len(answers(page)[0]) > 3
    assert not page.read("document.querySelector('.assistant .note').classList.contains('warn')")


def test_an_answer_that_is_cut_off_is_marked(open_page, server):
    page = open_page()
    ask(page, "a")
    page.wait("document.querySelector('.answer').textContent.length > 3")
    server.cut()
    page.wait(IS_DONE)
    assert page.text(".assistant .note") == "The answer broke off: the connection was lost."
    assert len(answers(page)[0]) > 3
    page.expect("ERR_")


def test_settings_and_history_are_sent_and_survive_a_reload(page, server):
    page.click("summary")
    given = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "max_tokens": 3, "seed": 7}
    given |= {"presence_penalty": -0.5, "frequency_penalty": 1, "repetition_penalty": 1.1}
    for name, value in given.items():
        page.fill(f"[name={name}]", str(value))
    page.fill("[name=system]", "s")
    page.fill("[name=stop]", "x\\ny\nz")
    assert page.text("#changed").startswith("system prompt, temperature 0.5, top p 0.9,")
    ask(page, "a")
    page.wait(IS_DONE)
    first = answers(page)[0]
    page.open(f"{server.url}/")
    ask(page, "b")
    page.wait(f"document.querySelectorAll('.turn').length === 4 && {IS_DONE}")
    assert page.text(".turn:last-child .note").endswith("ended at max tokens")
    options = {**given, "stop": ["x\ny", "z"], "stream": True, "stream_options": STREAM_OPTIONS}
    system, asked = {"role": "system", "content": "s"}, {"role": "user", "content": "a"}
    said, again = {"role": "assistant", "content": first}, {"role": "user", "content": "b"}
    assert bodies(page) == [
        {**options, "messages": [system, asked]},
        {**options, "messages": [system, asked, said, again]},
    ]
    page.click("#new")
    assert answers(page) == []
    page.click("#reset")
    ask(page, "c")
    page.wait(IS_DONE)
    assert bodies(page)[-1].keys() == {"messages", "stream", "stream_options"}


def test_an_answer_that_a_deadline_cuts_says_so(page, server, monkeypatch):
    submit = server.llm.parts.runner.submit
    monkeypatch.setattr(server.llm.parts.runner, "submit", lambda plan: time.sleep(0.03) or submit(plan))
    monkeypatch.setattr(server.state, "config", replace(server.state.config, request_timeout_s=1.0))
    ask(page, "a")
    page.wait(IS_DONE)
    assert page.text(".assistant .note").endswith("out of time")


def test_settings_out_of_range_are_shown_and_not_sent(page):
    page.click("summary")
    for name, value in (
        ("temperature", "2.5"),
        ("top_p", "0"),
        ("top_k", "1.5"),
        ("seed", "-"),
        ("stop", "\n".join(["x"] * (MAX_STOPS + 1))),
    ):
        page.fill(f"[name={name}]", value)
        ask(page, "a")
        assert page.read("document.activeElement.name") == name
        assert page.read("document.activeElement.ariaInvalid") == "true"
        assert re.search("must be|at most", page.text("#wrong"))
        page.read(f"document.querySelector('[name={name}]').value = ''")
    assert bodies(page) == []
    page.fill("[name=stop]", "\n".join(["x"] * MAX_STOPS))  # as many as the server accepts
    ask(page, "a")
    page.wait(IS_DONE)
    assert len(bodies(page)[-1]["stop"]) == MAX_STOPS


def test_refusals_are_explained_and_can_be_retried(open_page, server):
    page = open_page()
    server.state.status = ServerStatus.DRAINING
    try:
        ask(page, "a")
        page.wait(IS_DONE)
        assert page.text(".assistant .note") == "Not now: the server is draining. Try again in 30 s."
    finally:
        server.state.status = ServerStatus.READY
    press_button(page, "Again")
    page.wait("document.querySelector('.answer').textContent && " + IS_DONE)
    ask(page, "a" * 200)
    page.wait("document.querySelector('#problem').textContent")
    assert page.text("#problem").startswith("The conversation has grown too long for the model.")
    assert page.read("document.querySelector('#prompt').value") == "a" * 200
    assert page.read("document.querySelectorAll('.turn').length") == 2
    page.expect("responded with a status of 503", "responded with a status of 400")  # Chromium logs these itself
