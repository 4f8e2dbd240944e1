"""Wiring: how the texts begin on which drafts are trained: with given prompts, or with what the model itself asks."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.llm import LLM

MAX_QUESTION = 64
NUM_FIRST = 16  # tokens


def openings(llm: LLM, prompts: Sequence[list[int]] | None, numbers: Sequence[int], seed: int) -> list[list[int]]:
    """The first tokens of the texts `numbers`. prompts: asked in turn.

    None: a model with a chat template draws questions after the head of a user's turn, and answers them (Xu et al.,
    Magpie, arXiv 2406.08464). Others draw the first tokens after the start token. Both at temperature 1: below it many
    texts would begin alike.
    """
    if prompts is not None:
        return [prompts[number % len(prompts)] for number in numbers]
    start = [_start_token(llm)]
    if llm.parts.tokenizer is None or llm.parts.text.chat_template.source is None:
        return [start + drawn for drawn, _ in _drawn(llm, start, numbers, seed, NUM_FIRST, ignore_eos=True)]
    head = _head_of_user(llm) or start
    return [_chat(llm, text.strip()) for _, text in _drawn(llm, head, numbers, seed, MAX_QUESTION)]


def _drawn(
    llm: LLM, start: list[int], numbers: Iterable[int], seed: int, max_tokens: int, *, ignore_eos: bool = False
) -> list[tuple[list[int], str]]:
    """Tokens and text of each, drawn with a seed of its own."""
    params = [SamplingParams(seed=seed + number, max_tokens=max_tokens, ignore_eos=ignore_eos) for number in numbers]
    outputs = llm.generate([start] * len(params), params, use_tqdm=False)
    return [(list(output.outputs[0].token_ids), output.outputs[0].text) for output in outputs]


def _chat(llm: LLM, question: str) -> list[int]:
    return llm.render_chat([{"role": "user", "content": question}])["prompt_token_ids"]


def _head_of_user(llm: LLM) -> list[int]:
    """What conversations have before the first question: in what two with other questions agree."""
    pairs = zip(_chat(llm, "1"), _chat(llm, "a"), strict=False)
    return [token for token, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def _start_token(llm: LLM) -> int:
    """The token before every text, or the one after."""
    tokenizer = llm.parts.tokenizer
    if tokenizer is None:
        return 0
    return tokenizer.bos_id if tokenizer.bos_id is not None else next(iter(tokenizer.eos_ids), 0)
