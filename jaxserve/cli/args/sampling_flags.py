"""Host: the flags of `SamplingParams`, with their help texts."""

import argparse
from collections.abc import Collection
from typing import Any

from jaxserve.cli.args.dataclass_flags import add_flags, given
from jaxserve.core.options.sampling_params import SamplingParams

HELP = {
    "n": "samples of each prompt",
    "presence_penalty": "subtracted from the logits of tokens that were generated before, -2 to 2",
    "frequency_penalty": "subtracted for each time that a token was generated before, -2 to 2",
    "repetition_penalty": "divides the positive logits of tokens in prompt and output, multiplies the negative ones",
    "temperature": "0 takes the likeliest token; higher values draw more evenly",
    "top_p": "draw from the likeliest tokens that together have this probability",
    "top_k": "draw from so many of the likeliest tokens; 0: from all",
    "min_p": "draw from tokens at least this share as likely as the likeliest",
    "seed": "makes draws repeatable; default: drawn from the engine's seed",
    "stop": 'text that ends the output and is left out of it; JSON for several: \'["a", "b"]\'',
    "stop_token_ids": "token ids that end the output, as JSON: [1, 2]",
    "ignore_eos": "generate on after end-of-sequence tokens",
    "max_tokens": "most tokens to generate; none: until the context is full",
    "min_tokens": "tokens before which neither a stop nor an end token ends the output",
    "logprobs": "log-probabilities of so many candidates for each token; 0: of the token alone, -1: of all",
    "prompt_logprobs": "the same for each token of the prompt",
    "detokenize": "make text of the tokens",
    "skip_special_tokens": "leave special tokens out of the text",
    "shown_special_ids": "special tokens that are not left out, as JSON: [1, 2]",
    "spaces_between_special_tokens": "accepted as in vLLM; has no effect",
    "include_stop_str_in_output": "keep the text that ended the output",
    "logit_bias": "added to the logits of token ids, -100 to 100, as JSON: {\"5\": -100}",
    "allowed_token_ids": "the only token ids to draw, as JSON: [1, 2]",
    "bad_words": "texts that are not generated, as JSON: [\"a\", \"b\"]",
    "structured_outputs": "the form that the text must have, as JSON: {\"choice\": [\"yes\", \"no\"]}",
    "skip_reading_prefix_cache": "compute the whole prompt even where its prefix is cached",
}  # fmt: skip


# A command builds the engine of its requests: what these may do without is left out there. --kv-policy is the engine's.
OF_SHARED_ENGINES = frozenset({"kv_policy", "speculation"})


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each field of `SamplingParams` that means anything in a command."""
    add_flags(parser, SamplingParams, skip=OF_SHARED_ENGINES, help_texts=HELP)


def add_chat_flags(parser: argparse.ArgumentParser, *, skip: Collection[str]) -> None:
    """The same for answers, which may fill the context, except for the fields in `skip`."""
    texts = HELP | {"max_tokens": "most tokens of an answer, by default until the context is full"}
    skip = OF_SHARED_ENGINES.union(skip)
    add_flags(parser, SamplingParams, skip=skip, defaults={"max_tokens": None}, help_texts=texts)


def sampling_options(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `SamplingParams` that the user set."""
    return {name: value for name, value in given(args, SamplingParams).items() if name not in OF_SHARED_ENGINES}
