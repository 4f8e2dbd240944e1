"""The command line: `generate` works, and mistakes end with one sentence and exit code 2."""

import json
import re

import pytest

from tests.support.golden_data import checkpoint
from tests.support.processes.command_line import DEMO_SIZES, check_mistake, jaxserve

NAME = "smollm2-135m-instruct"


def test_generate_prints_the_completion_and_times_loading_compiling_and_generating_apart(real_model):
    real_model(NAME)
    args = ["--prompt", "The capital of France is", "--temperature", "0", "--max-tokens", "4"]
    done = jaxserve("generate", NAME, *DEMO_SIZES, *args)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Paris.")
    figures = re.search(
        r"^model loaded in [\d.]+ s\n"
        r"2 programs compiled in [\d.]+ s \([012] of them read from the compilation cache\)\n"
        r"4 tokens generated in [\d.]+ s: [\d.]+ tokens/s, compilation not counted\n"
        r"first token [\d.]+ s after the start of the process, loading and compilation included$",
        done.stderr,
        re.MULTILINE,
    )
    assert figures, done.stderr
    assert "\r" not in done.stderr  # bars are for terminals only


def test_generate_reads_prompts_from_standard_input_and_writes_json(real_model):
    real_model(NAME)
    args = ["--prompts-file", "-", "--json", "--quiet", "--temperature", "0", "--max-tokens", "3"]
    done = jaxserve("generate", NAME, *DEMO_SIZES, *args, stdin="One and\n\nTwo and\n")
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["prompt"] for line in lines] == ["One and", "Two and"]
    assert all(len(line["outputs"][0]["token_ids"]) == 3 for line in lines)


MISTAKES = {
    "no prompt": (["generate", NAME], "--prompt"),
    "unknown model": (["generate", "no-such-model", "--prompt", "x"], "no-such-model"),
    "bad parameter": (["generate", NAME, "--prompt", "x", "--top-p", "7"], "top_p"),
    "not a number": (["generate", NAME, "--prompt", "x", "--temperature", "nan"], "temperature"),
    "unknown flag": (["generate", NAME, "--prompt", "x", "--frobnicate", "1"], "--frobnicate"),
    "text without a tokenizer": (["generate", str(checkpoint("llama3")), "--prompt", "x"], "tokenizer"),
    "unknown verb": (["frobnicate"], "frobnicate"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_with_code_2_and_one_sentence(name):
    check_mistake(*MISTAKES[name])


def test_every_parameter_and_option_has_a_flag():
    import dataclasses

    from jaxserve import EngineConfig, SamplingParams

    # A verb lacks the flags that it cannot apply: `generate` has no conversation, `chat` one answer and no logprobs.
    in_chat = {"model", "n", "logprobs", "prompt_logprobs", "detokenize"}
    for verb, unknown in (("generate", {"model", "chat_template"}), ("chat", in_chat)):
        text = jaxserve(verb, "--help").stdout
        for cls in (SamplingParams, EngineConfig):
            for field in dataclasses.fields(cls):
                assert (f"--{field.name.replace('_', '-')} " in text) == (field.name not in unknown), (verb, field.name)
