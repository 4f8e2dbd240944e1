"""The command line: mistakes end with one sentence and exit code 2; every parameter and option has a flag."""

import dataclasses

import pytest

from jaxserve import EngineConfig, SamplingParams
from jaxserve.cli import chat, generate
from jaxserve.cli.args.dataclass_flags import engine_options
from jaxserve.cli.args.sampling_flags import sampling_options
from tests.support.golden_data import checkpoint
from tests.support.processes.command_line import check_mistake, check_mistake_here

NAME = "smollm2-135m-instruct"


MISTAKES = {
    "no prompt": (["generate", NAME], "--prompt"),
    "bad parameter": (["generate", NAME, "--prompt", "x", "--top-p", "7"], "top_p"),
    "not a number": (["generate", NAME, "--prompt", "x", "--temperature", "nan"], "temperature"),
    "unknown flag": (["generate", NAME, "--prompt", "x", "--frobnicate", "1"], "--frobnicate"),
    "text without a tokenizer": (["generate", str(checkpoint("llama3")), "--prompt", "x"], "tokenizer"),
    "unknown verb": (["frobnicate"], "frobnicate"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_with_code_2_and_one_sentence(name, capsys):
    check_mistake_here(*MISTAKES[name], capsys)


def test_a_process_ends_with_code_2_and_one_sentence():
    check_mistake(["generate", "no-such-model", "--prompt", "x"], "no-such-model")


def test_every_parameter_and_option_has_a_flag():
    # A verb lacks the flags that it cannot apply: `generate` has no conversation, `chat` one answer and no logprobs.
    # Drafts are an option of its engine.
    in_chat = {"model", "speculation", "n", "logprobs", "prompt_logprobs", "detokenize"}
    for verb, unknown in ((generate, {"model", "speculation", "chat_template"}), (chat, in_chat)):
        flags = verb._parser()._option_string_actions
        for cls in (SamplingParams, EngineConfig):
            for field in dataclasses.fields(cls):
                assert (f"--{field.name.replace('_', '-')}" in flags) == (field.name not in unknown), (verb, field.name)


def test_options_of_the_engine_are_not_passed_on_to_its_requests():
    policy, drafts = '{"name": "streaming", "window": 60}', '{"method": "ngram", "num_speculative_tokens": 3}'
    args = generate._parser().parse_args(["m", "--kv-policy", policy, "--speculative-config", drafts, "--top-k", "5"])
    assert sampling_options(args) == {"top_k": 5}
    config = EngineConfig.create("m", **engine_options(args))
    assert (config.streaming.window, config.speculation.num_speculative_tokens) == (60, 3)
