"""Host: `build_requests`: turns request specs into requests; synthetic prompts have exactly the specified tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jaxserve.bench.serving.datasets.encoders import Encoder
from jaxserve.bench.serving.datasets.request_specs import RequestSpec, Words
from jaxserve.bench.serving.datasets.words import FILLER, WORDS
from jaxserve.core.errors import ConfigError
from jaxserve.engine.inputs.prompt import Prompt

SLICE = 64  # specs that are encoded at once


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One request to send. prompt_len: tokens counted by an encoder; None where only the server can count them."""

    prompt: str | Sequence[int]
    prompt_len: int | None
    output_len: int
    arrival_s: float | None = None
    cache_salt: str | None = None


async def build_requests(
    specs: Sequence[RequestSpec],
    encoder: Encoder | None,
    *,
    sends_ids: bool = False,
    done: Callable[[int], object] = lambda count: None,
) -> list[BenchRequest]:
    """The requests of `specs`, in order.

    encoder: None is enough for given texts with given output lengths. sends_ids: prompts become token ids. done: is
    called with the number of new requests after each slice. Raises `ConfigError` where an encoder is needed, or where
    no text of the specified length exists.
    """
    requests: list[BenchRequest] = []
    for start in range(0, len(specs), SLICE):
        part = specs[start : start + SLICE]
        prompts = await _prompts(part, encoder, sends_ids)
        output_lens = await _output_lens(part, encoder)
        for spec, prompt, output_len in zip(part, prompts, output_lens, strict=True):
            sent = prompt.token_ids if sends_ids or prompt.text is None else prompt.text
            prompt_len = None if prompt.token_ids is None else len(prompt.token_ids)
            assert sent is not None
            requests.append(BenchRequest(sent, prompt_len, output_len, spec.arrival_s, prompt.cache_salt))
        done(len(part))
    return requests


def required(encoder: Encoder | None) -> Encoder:
    """The encoder; raises `ConfigError` where there is none."""
    if encoder is None:
        raise ConfigError("lengths in tokens need a tokenizer: add --tokenizer", param="tokenizer")
    return encoder


async def _prompts(specs: Sequence[RequestSpec], encoder: Encoder | None, needs_ids: bool) -> list[Prompt]:
    """The prompts, with their token ids where there is an encoder."""
    synthetic = [spec.prompt for spec in specs if isinstance(spec.prompt, Words)]
    fitted = iter(await fit(synthetic, required(encoder)) if synthetic else [])
    prompts = [next(fitted) if isinstance(spec.prompt, Words) else spec.prompt for spec in specs]
    texts = {i: p.text for i, p in enumerate(prompts) if p.token_ids is None and p.text is not None}
    if texts and (encoder is not None or needs_ids):
        encoded = await required(encoder).encode(list(texts.values()))
        for i, ids in zip(texts, encoded, strict=True):
            prompts[i] = replace(prompts[i], token_ids=ids)
    return prompts


async def _output_lens(specs: Sequence[RequestSpec], encoder: Encoder | None) -> list[int]:
    answers = [spec.output for spec in specs if isinstance(spec.output, str)]
    lens = map(len, await required(encoder).encode(answers) if answers else [])
    return [max(1, next(lens)) if isinstance(spec.output, str) else spec.output for spec in specs]


async def fit(specified: Sequence[Words], encoder: Encoder) -> list[Prompt]:
    """Texts of exactly the specified numbers of tokens, and their ids.

    A word has at least one token, so as many words as tokens are never too few. For the same reason a text that is c
    tokens too long is not too long without its last c words; words of one token then fill the rest.
    """
    spelled: list[list[str]] = [[WORDS[i] for i in words.indices[: words.num_tokens].tolist()] for words in specified]
    ids = await encoder.encode([" ".join(words) for words in spelled])
    for _ in ("cut", "fill"):
        missing = {i: words.num_tokens - len(ids[i]) for i, words in enumerate(specified)}
        wrong = [i for i in missing if missing[i]]
        for i in wrong:
            spelled[i] = spelled[i][: missing[i]] if missing[i] < 0 else spelled[i] + [FILLER] * missing[i]
        encoded = await encoder.encode([" ".join(spelled[i]) for i in wrong]) if wrong else []
        for i, found in zip(wrong, encoded, strict=True):
            ids[i] = found
    for words, text, found in zip(specified, spelled, ids, strict=True):
        if len(found) != words.num_tokens or not text:
            raise ConfigError(
                f"no prompt of exactly {words.num_tokens} tokens can be built from words: use another length or "
                "another --tokenizer",
                param="tokenizer",
            )
    return [Prompt(" ".join(text), found) for text, found in zip(spelled, ids, strict=True)]
