"""Host: `write`, from drafts to requests: made-up prompts have as many tokens as was asked for, to the token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jaxserve.bench.serving.datasets.encoders import Encoder
from jaxserve.bench.serving.datasets.request_specs import RequestSpec, Words
from jaxserve.bench.serving.datasets.words import FILLER, WORDS
from jaxserve.core.errors import ConfigError
from jaxserve.engine.inputs.prompt import Prompt

SLICE = 64  # drafts whose tokens are held at once


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What is sent. prompt_len: its tokens as an encoder counts them; None: only the server knows."""

    prompt: str | Sequence[int]
    prompt_len: int | None
    output_len: int
    arrival_s: float | None = None
    cache_salt: str | None = None


async def write(
    drafts: Sequence[RequestSpec],
    encoder: Encoder | None,
    *,
    sends_ids: bool = False,
    done: Callable[[int], object] = lambda count: None,
) -> list[BenchRequest]:
    """encoder None: there is none, which will do for texts and outputs that are given. sends_ids: prompts as token ids.
    done: gets the number of requests that were written, each time some are.

    Raises `ConfigError` if an encoder is needed, or cannot make a text of the length that is wanted.
    """
    requests = []
    for start in range(0, len(drafts), SLICE):
        part = drafts[start : start + SLICE]
        prompts = await _prompts(part, encoder, sends_ids)
        output_lens = await _output_lens(part, encoder)
        for draft, prompt, output_len in zip(part, prompts, output_lens, strict=True):
            sent = prompt.token_ids if sends_ids or prompt.text is None else prompt.text
            prompt_len = None if prompt.token_ids is None else len(prompt.token_ids)
            assert sent is not None
            requests.append(BenchRequest(sent, prompt_len, output_len, draft.arrival_s, prompt.cache_salt))
        done(len(part))
    return requests


def needed(encoder: Encoder | None) -> Encoder:
    if encoder is None:
        raise ConfigError("lengths in tokens need a tokenizer: give --tokenizer", param="tokenizer")
    return encoder


async def _prompts(drafts: Sequence[RequestSpec], encoder: Encoder | None, needs_ids: bool) -> list[Prompt]:
    """With their token ids, where an encoder is at hand."""
    made_up = [draft.prompt for draft in drafts if isinstance(draft.prompt, Words)]
    made = iter(await fit(made_up, needed(encoder)) if made_up else [])
    prompts = [next(made) if isinstance(draft.prompt, Words) else draft.prompt for draft in drafts]
    texts = {i: p.text for i, p in enumerate(prompts) if p.token_ids is None and p.text is not None}
    if texts and (encoder is not None or needs_ids):
        encoded = await needed(encoder).encode(list(texts.values()))
        for i, ids in zip(texts, encoded, strict=True):
            prompts[i] = replace(prompts[i], token_ids=ids)
    return prompts


async def _output_lens(drafts: Sequence[RequestSpec], encoder: Encoder | None) -> list[int]:
    answers = [draft.output for draft in drafts if isinstance(draft.output, str)]
    lens = map(len, await needed(encoder).encode(answers) if answers else [])
    return [max(1, next(lens)) if isinstance(draft.output, str) else draft.output for draft in drafts]


async def fit(wanted: Sequence[Words], encoder: Encoder) -> list[Prompt]:
    """Texts of exactly the tokens that are wanted, and their ids.

    As many words as tokens are never too few, for each has at least one. By the same law a text that is c tokens too
    long is not too long without its last c words, and what it lacks then is filled with words of one token.
    """
    spelled = [[WORDS[i] for i in words.indices[: words.num_tokens].tolist()] for words in wanted]
    ids = await encoder.encode([" ".join(words) for words in spelled])
    for _ in ("cut", "fill"):
        missing = {i: words.num_tokens - len(ids[i]) for i, words in enumerate(wanted)}
        wrong = [i for i in missing if missing[i]]
        for i in wrong:
            spelled[i] = spelled[i][: missing[i]] if missing[i] < 0 else spelled[i] + [FILLER] * missing[i]
        encoded = await encoder.encode([" ".join(spelled[i]) for i in wrong]) if wrong else []
        for i, found in zip(wrong, encoded, strict=True):
            ids[i] = found
    for words, text, found in zip(wanted, spelled, ids, strict=True):
        if len(found) != words.num_tokens or not text:
            raise ConfigError(
                f"no prompt of exactly {words.num_tokens} tokens can be made of words: ask for another length, or give "
                "another --tokenizer",
                param="tokenizer",
            )
    return [Prompt(" ".join(text), found) for text, found in zip(spelled, ids, strict=True)]
