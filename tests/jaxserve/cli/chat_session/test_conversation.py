"""A conversation keeps its turns consistent, however an answer ends."""

import json

import pytest

from jaxserve.cli.chat_session.conversation import ContextFullError, Conversation
from jaxserve.core.errors import RequestError
from jaxserve.core.outputs import CompletionOutput, RequestOutput
from tests.jaxserve.cli.scripted_llm import FakeLLM


@pytest.fixture
def llm():
    return FakeLLM()


@pytest.fixture
def talk(llm):
    return Conversation(llm, max_model_len=20, system="be kind")


def contents(conversation):
    return [turn["content"] for turn in conversation.turns]


def test_each_answer_sees_the_system_message_and_all_turns_before_it(talk, llm):
    assert list(talk.ask("one two")) == ["ONE ", "TWO "]
    assert "".join(talk.ask("three")) == "THREE "
    assert llm.prompts[-1] == "system:be kind | user:one two | assistant:ONE TWO  | user:three"
    talk.system = None
    list(talk.ask("four"))
    assert llm.prompts[-1].startswith("user:one two | ")


def test_an_answer_that_is_stopped_keeps_what_came(talk, llm):
    pieces = talk.ask("one two three")
    assert next(pieces) == "ONE "
    pieces.close()
    assert contents(talk) == ["one two three", "ONE "]
    assert llm.num_closed == 1
    assert (talk.last.num_tokens, talk.last.finish_reason) == (1, None)


def test_an_answer_of_which_nothing_came_leaves_the_turns_as_they_were(talk, llm):
    list(talk.ask("a"))
    for failure in ("closed", "error"):
        llm.finish_reason = "error"
        pieces = talk.ask("b")
        pieces.close() if failure == "closed" else list(pieces)
        assert contents(talk) == ["a", "A "]


def test_retry_puts_another_answer_in_place_of_the_last(talk):
    list(talk.ask("one two"))
    talk.set("max_tokens", 1)
    assert list(talk.retry()) == ["ONE "]
    assert contents(talk) == ["one two", "ONE "]


def test_an_answer_without_text_adds_nothing(talk, llm):
    """A message without content would be refused with the next question."""
    list(talk.ask("a"))
    before, ended = contents(talk), CompletionOutput(0, "", [7], finish_reason="stop")
    llm.stream = lambda prompt, params: (RequestOutput("0", None, [], outputs=[each]) for each in [ended])
    assert list(talk.ask("b")) == [""]
    assert contents(talk) == before


def test_undo_takes_back_one_question_with_its_answer(talk):
    for text in ("a", "b"):
        list(talk.ask(text))
    assert talk.undo() == "b"
    assert contents(talk) == ["a", "A "]
    talk.undo()
    for call in (talk.undo, talk.retry):
        with pytest.raises(RequestError, match="there is no question yet"):
            call()


def test_a_full_context_is_said_before_anything_runs_and_undo_makes_room(talk):
    def ask_on():
        for _ in range(9):
            list(talk.ask("word " * 4))

    with pytest.raises(ContextFullError, match="context of 20"):
        ask_on()
    before = contents(talk)
    talk.undo()
    assert len(before) == len(contents(talk)) + 2
    assert list(talk.ask("a"))
    talk.reset()
    assert talk.messages == [{"role": "system", "content": "be kind"}]


def test_settings_outlive_those_that_switch_them_off(talk):
    talk.set("top_p", 0.5)
    talk.set("temperature", 0)
    assert talk.params.is_greedy
    talk.set("temperature", 1.0)
    assert talk.params.top_p == 0.5


@pytest.mark.parametrize(("name", "value"), [("n", 2), ("logprobs", 1), ("temprature", 1), ("top_p", 7)])
def test_settings_that_cannot_be_are_refused_and_change_nothing(talk, name, value):
    before = talk.params
    with pytest.raises(RequestError):
        talk.set(name, value)
    assert talk.params == before
    talk.set("temperature", 0.5)


def test_a_saved_conversation_goes_on_elsewhere(talk, llm, tmp_path):
    list(talk.ask("Grüße 😀"))
    talk.save(tmp_path / "chat.json")
    other = Conversation(llm, 20)
    other.load(tmp_path / "chat.json")
    assert (other.system, other.turns) == ("be kind", talk.turns)
    talk.system = None
    talk.save(tmp_path / "chat.json")
    other.load(tmp_path / "chat.json")
    assert other.system is None


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ("{", "not JSON"),
        ("{}", "list of messages"),
        ('[{"role": "user"}]', "list of messages"),
        ('[{"role": "user", "content": "a"}, {"role": "system", "content": "a"}]', "not 'system'"),
    ],
)
def test_files_that_hold_no_conversation_are_refused_and_change_nothing(talk, tmp_path, saved, message):
    list(talk.ask("a"))
    before = json.dumps(talk.messages)
    (tmp_path / "chat.json").write_text(saved)
    with pytest.raises(RequestError, match=message):
        talk.load(tmp_path / "chat.json")
    assert json.dumps(talk.messages) == before


def test_the_last_answer_tells_its_tokens_and_speed(talk):
    assert talk.last is None
    list(talk.ask("one two three"))
    assert (talk.last.num_prompt_tokens, talk.last.num_tokens, talk.last.finish_reason) == (6, 3, "stop")
    assert talk.last.tokens_per_s > 0
    list(talk.ask("one"))
    assert talk.last.tokens_per_s is None
