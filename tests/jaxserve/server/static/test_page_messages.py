"""Messages of a conversation: edited, answered again, continued, branched, deleted; refused ones; files; reasoning."""

import pytest

from tests.support.serving.http_server import NAME
from tests.support.serving.web_page import IS_DONE, ask, ask_and_wait, bodies, press_button, script_answers, shown

BODIES = "window.bodies.map((body) => body.messages)"


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


@pytest.fixture
def talk(page):
    """Two questions with their answers."""
    script_answers(page, "one", "two")
    ask_and_wait(page, "q1")
    ask_and_wait(page, "q2")
    return page


def save_edit(page, text):
    page.read(f"{{ const box = document.querySelector('.editor textarea'); box.value = {text!r}; box.focus() }}")
    page.press("Enter")


def test_an_edited_question_is_another_version(talk):
    script_answers(talk, "three")
    press_button(talk, "Edit", turn=0)
    assert talk.read("document.activeElement.value") == "q1"
    save_edit(talk, "q3")
    talk.wait(f"document.querySelectorAll('.turn').length === 2 && {IS_DONE}")
    assert shown(talk) == ["q3", "three"]
    assert talk.read(BODIES)[-1] == [user("q3")]
    assert talk.text(".versions span") == "2/2"
    press_button(talk, "‹", turn=0)
    assert shown(talk) == ["q1", "one", "q2", "two"]
    assert talk.read("document.activeElement.ariaLabel") == "Next version"
    talk.press("Enter")
    assert shown(talk) == ["q3", "three"]


def test_an_answer_is_requested_again(talk):
    script_answers(talk, "three", "four")
    press_button(talk, "Again")
    talk.wait(f"document.querySelector('.turn:last-child').innerText.includes('three') && {IS_DONE}")
    assert shown(talk) == ["q1", "one", "q2", "three"]
    assert talk.read(BODIES)[-1] == [user("q1"), assistant("one"), user("q2")]
    press_button(talk, "‹")
    assert shown(talk)[-1] == "two"
    press_button(talk, "Again", turn=1)
    talk.wait(f"document.querySelectorAll('.turn').length === 2 && {IS_DONE}")
    assert shown(talk) == ["q1", "four"]
    press_button(talk, "‹")
    assert shown(talk) == ["q1", "one", "q2", "three"]  # the newest branch below


def test_an_answer_is_continued_by_the_server(page, server):
    page.click("summary")
    page.fill("[name=max_tokens]", "5")
    ask_and_wait(page, "a")
    first = shown(page)[-1]
    assert page.text(".assistant .note").endswith("ended at max tokens")
    press_button(page, "Continue")
    page.wait(f"document.querySelector('.answer').innerText.length > {len(first)} && {IS_DONE}")
    assert shown(page)[-1].startswith(first)
    body = bodies(page)[-1]
    assert body["messages"] == [user("a"), assistant(first)]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_an_answer_is_edited_without_a_request(talk):
    press_button(talk, "Edit", turn=1)
    save_edit(talk, "**mine**")
    assert shown(talk) == ["q1", "mine"]
    assert talk.read("document.querySelector('.answer').innerHTML") == "<p><strong>mine</strong></p>"
    assert len(talk.read("window.bodies")) == 2
    press_button(talk, "Edit")
    talk.press("Escape")
    assert shown(talk) == ["q1", "mine"]


def test_a_message_is_deleted_with_what_follows_and_comes_back(talk):
    press_button(talk, "Delete", turn=1)
    assert shown(talk) == ["q1"]
    assert talk.text("#notice") == "The message is deleted. Undo"
    talk.click("#notice button")
    assert shown(talk) == ["q1", "one", "q2", "two"]
    press_button(talk, "Delete", turn=0)
    assert shown(talk) == []
    assert talk.read("document.activeElement.id") == "prompt"


def test_a_branch_is_a_conversation_of_its_own(talk):
    script_answers(talk, "three")
    press_button(talk, "Branch", turn=1)
    assert shown(talk) == ["q1", "one"]
    assert talk.read("document.querySelector('#title').value") == "q1 (branch)"
    ask_and_wait(talk, "q3")
    assert shown(talk) == ["q1", "one", "q3", "three"]
    talk.read("[...document.querySelectorAll('#conversation-list button')].at(1).click()")
    assert shown(talk) == ["q1", "one", "q2", "two"]


def test_a_refused_message_is_back_where_it_was_written(open_page):
    page = open_page()
    script_answers(page, "one", {"status": 400, "message": "too long", "code": "context_length_exceeded"})
    ask_and_wait(page, "q1")
    ask(page, "q2")
    page.wait("document.querySelector('#problem').textContent")
    assert page.text("#problem") == "The conversation has grown too long for the model. too long."
    assert shown(page) == ["q1", "one"]
    assert page.read("document.querySelector('#prompt').value") == "q2"
    script_answers(page, {"status": 400, "message": "no", "param": "top_k"}, "two")
    press_button(page, "Edit", turn=0)
    save_edit(page, "q3")
    page.wait("document.querySelector('#problem').textContent.includes('no.')")
    assert page.read("document.querySelector('.editor textarea').value") == "q3"
    assert page.read("document.querySelector('[name=top_k]').ariaInvalid") == "true"
    save_edit(page, "q4")
    page.wait(f"document.querySelector('.question').innerText === 'q4' && {IS_DONE}")
    assert shown(page) == ["q4", "two"]
    assert page.text("#problem") == ""


def test_unanswered_questions_are_not_sent_again(open_page):
    page = open_page()
    script_answers(page, {"status": 500, "message": "oops"}, "two", {"status": 503, "message": "later"}, "three")
    ask_and_wait(page, "q1")
    assert page.text(".assistant .note") == "The server failed. oops."
    ask_and_wait(page, "q2")
    assert page.read(BODIES)[-1] == [user("q2")]
    ask_and_wait(page, "q3")
    press_button(page, "Again")
    page.wait(f"document.querySelector('.turn:last-child').innerText.includes('three') && {IS_DONE}")
    assert page.read(BODIES)[-1] == [user("q2"), assistant("two"), user("q3")]
    assert page.read("document.querySelector('.versions')") is None  # tried again in its place


REASONED = {
    "tags": "<think>\nfirst *this*</think>\n\nthe answer",
    "the closing tag only": "first *this*\n</think>\n\nthe answer",
    "a field": {"deltas": [{"reasoning": "first "}, {"reasoning": "*this*"}, {"content": "the answer"}]},
    "an older field": {"deltas": [{"reasoning_content": "first *this*"}, {"content": "the answer"}]},
}


@pytest.mark.parametrize("kind", REASONED)
def test_reasoning_is_folded_and_not_sent_back(page, kind):
    script_answers(page, REASONED[kind], "two")
    ask_and_wait(page, "q1")
    assert page.text(".reasoning summary") == "Reasoning"
    assert page.read("document.querySelector('.reasoning').open") is False
    assert page.read("document.querySelector('.reasoning div').innerHTML") == "<p>first <em>this</em></p>"
    assert page.read("document.querySelector('.answer').innerHTML") == "<p>the answer</p>"
    ask_and_wait(page, "q2")
    assert page.read(BODIES)[-1] == [user("q1"), assistant("the answer"), user("q2")]


def test_text_files_are_sent_with_a_question(page, tmp_path):
    (tmp_path / "a.py").write_text("x = '```'\n")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "c.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (tmp_path / "large.txt").write_text("x" * 1_000_001)
    page.attach("#file", tmp_path / "c.png")
    page.wait("document.querySelector('#problem').textContent === 'c.png is not a text file in UTF-8.'")
    page.attach("#file", tmp_path / "large.txt")
    page.wait("document.querySelector('#problem').textContent === 'large.txt is larger than 1 MB.'")
    page.attach("#file", tmp_path / "a.py", tmp_path / "b.txt", tmp_path / "b.txt")
    page.wait("document.querySelectorAll('#files li').length === 3")
    assert page.text("#problem") == ""
    page.click("#files li:last-child button")
    script_answers(page, "one", "two")
    ask_and_wait(page, "read")
    assert page.read(BODIES)[-1] == [user("read\n\nFile a.py:\n````\nx = '```'\n````\n\nFile b.txt:\n```\nb\n```")]
    assert page.read("[...document.querySelectorAll('.file summary')].map((one) => one.innerText)") == [
        "a.py, 2 lines",
        "b.txt, 1 line",
    ]
    assert page.read("document.querySelectorAll('#files li').length") == 0


SLOW = """{
  const real = fetch;
  window.fetch = (url, options) => String(url).endsWith("/completions")
    ? Promise.resolve(new Response(new ReadableStream({ start: (stream) => (window.stream = stream) })))
    : real(url, options);
  window.send = (data) => stream.enqueue(new TextEncoder().encode(`data: ${data}\\n\\n`));
  window.say = (content, usage) => send(JSON.stringify({ choices: [{ delta: { content } }], usage }));
}"""


def test_new_text_stays_in_sight_until_one_scrolls_up(page):
    page.read(SLOW)
    ask(page, "a")
    left = "(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight)(turns)"
    page.wait("!!window.stream")
    for k in range(5):
        page.read(f"say('# Part {k}\\n\\n' + 'A line.\\n\\n'.repeat(20))")
        page.wait(f"document.querySelector('.answer').innerText.includes('Part {k}') && {left} < 40")
    assert page.read("turns.scrollTop") > 1000
    page.read("turns.scrollTop -= 300; new Promise(requestAnimationFrame)")
    page.read("say('# Part 5')")
    page.wait("document.querySelector('.answer').innerText.includes('Part 5')")
    assert page.read(left) > 250
    page.read("send('[DONE]')")
    page.wait(IS_DONE)
    assert page.read(left) > 250


def test_the_time_to_the_first_token_is_shown_during_the_answer(page):
    page.read(SLOW)
    ask(page, "a")
    note = "document.querySelector('.assistant .note').textContent"
    page.wait(f"/^waiting for the first token: [\\d.]+ m?s$/.test({note})")
    page.read("say('a', { completion_tokens: 1 })")
    page.wait(f"/^1 token · first after [\\d.]+ m?s$/.test({note})")
    page.read("say('b', { completion_tokens: 2 })")
    page.wait(f"/^2 tokens · first after .* per second$/.test({note})")
    page.read("send('[DONE]')")
    page.wait(IS_DONE)
    assert page.read(f"/^2 tokens · first after .* per second$/.test({note})")


def test_messages_cannot_be_changed_during_an_answer(page):
    ask(page, "a")
    page.wait("document.querySelector('.answer')?.textContent.length > 3")
    assert not page.read("[...document.querySelectorAll('.idle button')].some((one) => one.checkVisibility())")
    page.click("#new")  # stops the answer and keeps what has been received
    assert shown(page) == []
    page.click("#conversation-list button")
    assert len(shown(page)[-1]) > 0
    assert page.text(".assistant .note") == "stopped"
    assert page.text(".assistant h2") == NAME
