"""`jaxserve generate` and `jaxserve chat` from a pipe: plain lines in, plain lines or JSON out, nothing else."""

import io
import json
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
