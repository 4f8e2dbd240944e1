"""The output of a chat for typed lines, commands and Ctrl-C."""

import io
import os
import signal
import sys
import threading

import pytest

from jaxserve.cli.chat_session import compile_notice
from jaxserve.cli.chat_session.compile_notice import ERASE
from jaxserve.cli.chat_session.conversation import Conversation
from jaxserve.cli.chat_session.terminal import answer_lines, read_turn, talk
from tests.jaxserve.cli.scripted_llm import FakeLLM


@pytest.fixture
def conversation():
    return Conversation(FakeLLM(), max_model_len=30)


def typing(*lines):
    """`input` that returns these lines; KeyboardInterrupt stands for Ctrl-C, the end for Ctrl-D."""
    left = iter(lines)

    def read_line(prompt):
        line = next(left, EOFError)
        if not isinstance(line, str):
            raise line
        return line

    return read_line


@pytest.fixture
def session(conversation, capsys):
    """Types lines and returns the output."""

    def run(*lines):
        talk(conversation, typing(*lines))
        return capsys.readouterr().out

    return run


def test_an_answer_is_shown_as_it_comes_and_kept(session, conversation):
    assert session("one two", "", "  ") == "ONE TWO \n\n"
    assert [turn["content"] for turn in conversation.turns] == ["one two", "ONE TWO "]


def test_messages_of_several_lines(conversation):
    for lines, text in (
        (['"""a', "", "b", 'c"""'], "a\n\nb\nc"),
        (['"""', "a", '"""  '], "a"),
        (['"""a"""'], "a"),
        (["a\\", "b\\", "c"], "a\nb\nc"),
    ):
        assert read_turn(typing(*lines)) == text


def test_every_command_is_listed_and_known(session):
    shown = session("/help")
    for name in ("help", "exit", "reset", "system", "set", "retry", "undo", "stats", "save", "load"):
        assert f"/{name}" in shown
        assert "no command" not in session("/" + name)
    assert "no command /usr/bin" in session("/usr/bin x")
    assert "did you mean /reset?" in session("/rest")
    assert session(" /usr").startswith("/USR")


@pytest.mark.parametrize("line", ["/exit", "/quit"])
def test_leaving(session, line):
    assert session(line, "never read") == ""


def test_settings_are_changed_and_shown(session, conversation):
    assert session("/set temperature 0.25", "/set max-tokens=1") == "temperature = 0.25\nmax_tokens = 1\n\n"
    shown = session("/set")
    assert "0.25" in shown
    assert " n " not in shown
    assert "stopped at max_tokens 1" in session("one two")
    assert session("/set max_tokens none", "one two").startswith("max_tokens = None\nONE TWO")
    assert "top_p" in session("/set top_p 7")
    assert "the value is missing" in session("/set top_p")
    assert session("/set stop a=b", "/set top-p = 0.5") == "stop = ('a=b',)\ntop_p = 0.5\n\n"
    assert "name a parameter" in session("/set =5")
    assert session('/set stop ["x", "y"]').startswith("stop = ('x', 'y')")


def test_the_system_message_is_set_shown_and_taken_away(session, conversation):
    assert session("/system be kind", "/system").count("be kind") == 1
    assert conversation.system == "be kind"
    assert "no system message" in session("/system -", "/system")


def test_turns_are_undone_forgotten_and_tried_again(session, conversation):
    assert session("one", "/retry", "/undo", "/retry") == "ONE \nONE \nRemoved: one\nthere is no question yet\n\n"
    session("one", "/clear")
    assert conversation.turns == []


def test_files_are_named_saved_and_loaded(session, conversation, tmp_path):
    path = tmp_path / "with space.json"
    shown = session("one", f"/save {path}", "/reset", f"/load {path}", "/save", "/load /no/such")
    assert "Saved 2 messages." in shown
    assert "Loaded 2 messages." in shown
    assert "name a file" in shown
    assert "No such file" in shown
    assert len(conversation.turns) == 2


def test_stats_tell_tokens_and_speed(session):
    assert "no answer yet" in session("/stats")
    shown = session("one two three", "/stats")
    assert "1 tokens read" not in shown
    assert "3 prompt tokens, 3 generated tokens" in shown
    assert "tokens/s" in shown


def test_a_full_context_tells_what_to_do_and_the_chat_goes_on(session):
    shown = session("word " * 40, "one")
    assert "/undo" in shown
    assert "/reset" in shown
    assert shown.endswith("ONE \n\n")


def test_an_answer_that_fills_the_context_says_so(session, conversation):
    conversation._llm.finish_reason = "length"
    assert "(the context is full" in session("one")


def test_ctrl_c_stops_the_answer_keeps_what_came_and_not_the_program(session, conversation):
    whole = conversation._llm._pieces

    def pressed_after_the_first(words, reason):
        for i, piece in enumerate(whole(words, reason)):
            yield piece
            if i == 0:
                os.kill(os.getpid(), signal.SIGINT)

    conversation._llm._pieces = pressed_after_the_first
    before = signal.getsignal(signal.SIGINT)
    shown = session("one two three four", "/exit")
    assert shown == "ONE TWO \n(stopped)\n"
    assert [turn["content"] for turn in conversation.turns] == ["one two three four", "ONE TWO "]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_interrupts_an_answer_that_does_not_come(session, conversation):
    def stuck(words, reason):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        yield from ()

    conversation._llm._pieces = stuck
    assert session("one", "/exit") == "\n(stopped)\n"
    assert conversation.turns == []


def test_two_times_ctrl_c_at_the_prompt_leaves_and_one_does_not(session):
    shown = session(KeyboardInterrupt, "one", KeyboardInterrupt, KeyboardInterrupt, "never read")
    assert shown.count("ends the chat)") == 2
    assert "ONE" in shown
    assert "NEVER" not in shown


def test_lines_of_a_pipe_are_questions_and_none_a_command(conversation, capsys):
    assert answer_lines(conversation, io.StringIO("one\n\n/exit\r\ntwo")) == 0
    assert capsys.readouterr().out == "ONE \n/EXIT \nTWO \n"
    assert len(conversation.turns) == 6


def test_a_failed_answer_from_a_pipe_is_said_and_counts(conversation, capsys):
    conversation._llm.finish_reason = "error"
    assert answer_lines(conversation, ["one", "two"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "ONE \nTWO \n"
    assert shown.err.count("logits are not finite") == 2


def test_a_line_that_cannot_be_answered_is_said_and_counts(conversation, capsys):
    assert answer_lines(conversation, ["word " * 40, "one"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "ONE \n"
    assert "no room for an answer" in shown.err


def test_while_an_answer_waits_for_a_compilation_the_terminal_says_so(session, capsys, monkeypatch):
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True)
    monkeypatch.setattr(compile_notice, "TICK_S", 0.001)
    looks, is_seen = iter(("", "compiling decode for 1 s")), threading.Event()

    def status():
        is_seen.set()
        return next(looks, "compiling decode for 2 s")

    monkeypatch.setattr(compile_notice.COMPILE_TIMES, "status", status)
    with compile_notice.compile_notice():
        for _ in range(3):
            assert is_seen.wait(60)
            is_seen.clear()
    assert capsys.readouterr().err.startswith(f"{ERASE}compiling decode for 1 s{ERASE}compiling decode for 2 s")


def test_the_notice_is_erased_before_the_answer(conversation, capsys, monkeypatch):
    """And where standard error is no terminal, there is none."""
    monkeypatch.setattr(compile_notice, "TICK_S", 0.001)
    is_seen = threading.Event()
    monkeypatch.setattr(compile_notice.COMPILE_TIMES, "status", lambda: is_seen.set() or "compiling decode for 1 s")
    ask = conversation.ask

    def waiting(text):
        assert is_seen.wait(60)
        is_seen.clear()
        assert is_seen.wait(60)
        yield from ask(text)

    monkeypatch.setattr(conversation, "ask", waiting)
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True)
    talk(conversation, typing("one"))
    said = capsys.readouterr()
    assert said.out == "ONE \n\n"
    assert said.err.endswith(ERASE)
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: False)
    monkeypatch.setattr(conversation, "ask", ask)
    talk(conversation, typing("one"))
    assert capsys.readouterr().err == ""
