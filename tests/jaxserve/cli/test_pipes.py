"""`jaxserve generate` and `jaxserve chat` from a pipe: plain lines in, plain lines or JSON out, nothing else."""

import io
import json
import os
import sys

import pytest

from jaxserve.cli.main import main
from jaxserve.engine.llm import LLM
from tests.support.fakes.fake_llm import Reciter, fake_llm


@pytest.fixture
def said(monkeypatch, capsys):
    """Runs a verb over text on standard input; returns what it prints, nothing of it on standard error."""

    def run(argv, text):
        monkeypatch.setattr(LLM, "from_config", lambda *_, **__: fake_llm(Reciter(264, said="Paris. ")))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main([*argv, "--temperature", "0"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out.splitlines()

    return run


def test_generate_reads_prompts_and_writes_json(said):
    argv = ["generate", "m", "--prompts-file", "-", "--json", "--quiet", "--max-tokens", "3"]
    lines = [json.loads(line) for line in said(argv, "One and\n\nTwo and\n")]
    assert [line["prompt"] for line in lines] == ["One and", "Two and"]
    assert all(len(line["outputs"][0]["token_ids"]) == 3 for line in lines)


def test_chat_answers_each_line(said):
    question = "What is the capital of France?\n\nOnce more?\n"
    first, second = said(["chat", "m", "--max-tokens", "6"], question)
    assert "Paris" in first
    assert second


def test_a_line_that_is_no_text_is_named_and_the_others_are_answered(monkeypatch, capsys):
    monkeypatch.setattr(LLM, "from_config", lambda *_, **__: fake_llm(Reciter(264, said="Paris. ")))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"One?\ncaf\xe9?\nTwo?\n"), encoding="utf-8"))
    assert main(["chat", "m", "--max-tokens", "6", "--temperature", "0"]) == 1
    out, err = capsys.readouterr()
    assert err == "jaxserve chat: the question is not UTF-8 text\n"
    assert len(out.splitlines()) == 2


def test_what_a_terminal_cannot_show_is_replaced(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(LLM, "from_config", lambda *_, **__: fake_llm(Reciter(264, said="é. ")))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    assert main(["generate", "m", "--prompt", "One", "--max-tokens", "6", "--temperature", "0", "--quiet"]) == 0
    assert b"?." in shown.getvalue()


@pytest.mark.parametrize("words", [["generate", "m", "--prompt", "One", "--max-tokens", "6", "--quiet"], ["--help"]])
def test_a_reader_that_has_read_enough_is_no_fault(words, monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(LLM, "from_config", lambda *_, **__: fake_llm(Reciter(264, said="Paris. ")))
    with open(writing, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(words) == 141
    assert capsys.readouterr().err == ""
