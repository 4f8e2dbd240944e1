"""The command line: mistakes end with one sentence and exit code 2; every parameter and option has a flag."""

import pytest

from tests.support.golden_data import checkpoint
from tests.support.processes.command_line import check_mistake, jaxserve

NAME = "smollm2-135m-instruct"


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
