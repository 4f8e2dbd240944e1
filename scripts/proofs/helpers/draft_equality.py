"""Ways of running an engine, and whether its drafts change the texts there."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from scripts.proofs.helpers.draft_configs import NGRAMS, SMOLLM, ready
from scripts.proofs.helpers.draw_ties import TieCheck
from scripts.proofs.helpers.stored_rows import stored
from scripts.proofs.parity import read_goldens

NUM_TOKENS = 64
COMMON = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 16, "max_num_batched_tokens": 512}
SAMPLERS = {"greedy": {"temperature": 0.0}, "temperature 0.8": {"temperature": 0.8}}

Texts = list[list[list[int]]]
"""Of each prompt the tokens of its samples."""


@dataclass(frozen=True)
class Way:
    """options: of both engines. params: of all requests. prompt_len: prompts are repeated up to this length.

    shared_len: so many tokens stand before every prompt, and are computed once. is_alone: one request after the other.
    ends_early: every third request is aborted within its first tokens.
    """

    options: dict = field(default_factory=dict)
    params: dict = field(default_factory=dict)
    num_prompts: int = 100
    model: str = SMOLLM
    prompt_len: int = 0
    shared_len: int = 0
    is_alone: bool = False
    ends_early: bool = False

    def prompts(self) -> list[list[int]]:
        """Those of the goldens."""
        goldens = read_goldens(self.model)[0]
        shared = [token for prompt in goldens for token in prompt][: self.shared_len]
        prompts = [[*shared, *prompt] for prompt in goldens[: self.num_prompts]]
        return [prompt * max(-(-self.prompt_len // len(prompt)), 1) for prompt in prompts]


def compare(proof: str, way: Way) -> list[dict]:
    """Texts of one way with drafts, n-grams unless it says others, and without, by sampler. proof: stores those
    without, which several ways may have in common."""
    from jaxserve import LLM
    from tests.support.drafting import always, counted

    prompts, options = way.prompts(), {"speculative_config": NGRAMS} | way.options
    ready(options["speculative_config"])
    drafting = always(LLM(way.model, **COMMON | options))
    penalties = {name: value for name, value in way.params.items() if name != "n"}
    check, rows = TieCheck(way.model, penalties, **COMMON), list[dict]()
    for name, sampler in SAMPLERS.items():
        started, num_preemptions = time.monotonic(), drafting.stats.num_preemptions
        num_cached = drafting.stats.num_cached_tokens
        expected = _without_drafts(proof, way, sampler)
        with counted(drafting) as seen:
            found = _texts(drafting, way, prompts, sampler)
        different = [i for i in range(len(prompts)) if not _are_equal(way, found[i], expected[i])]
        temperature = sampler["temperature"]
        num_ties = sum(_is_tie(check, prompts[i], found[i], expected[i], temperature, i) for i in different)
        ambiguous = _count_ambiguous(check, prompts, expected, temperature)
        proposed, accepted = (int(total) for total in np.sum(seen, axis=0))
        rows.append(
            {
                "sampler": name,
                "equal": len(prompts) - len(different),
                "ties": num_ties,
                "of": len(prompts),
                "accepted": accepted,
                "of drafts": proposed,
                "ambiguous positions": ambiguous,
                "cached tokens": drafting.stats.num_cached_tokens - num_cached,
                "aborted": sum(len(text) < NUM_TOKENS for samples in found for text in samples),
                "preemptions": drafting.stats.num_preemptions - num_preemptions,
                "s": round(time.monotonic() - started),
            }
        )
    return rows


def _without_drafts(proof: str, way: Way, sampler: dict) -> Texts:
    from jaxserve import LLM

    own = replace(way, options={name: of for name, of in way.options.items() if name != "speculative_config"})
    name = f"without drafts: {json.dumps(asdict(own) | sampler)}"
    return stored(proof, name, lambda: _texts(LLM(way.model, **COMMON | own.options), way, way.prompts(), sampler))


def _texts(llm, way: Way, prompts: list[list[int]], sampler: dict) -> Texts:
    """The seed of a request is its number."""
    from jaxserve import SamplingParams

    asked = way.params | sampler | {"max_tokens": NUM_TOKENS, "ignore_eos": True}
    params = [SamplingParams(**asked, seed=i) for i in range(len(prompts))]
    if way.ends_early:
        return list(_streamed(llm, prompts, params))
    calls = [[i] for i in range(len(prompts))] if way.is_alone else [range(len(prompts))]
    outputs = [
        output
        for call in calls
        for output in llm.generate([prompts[i] for i in call], [params[i] for i in call], use_tqdm=False)
    ]
    return [[sample.token_ids for sample in output.outputs] for output in outputs]


def _streamed(llm, prompts: list[list[int]], params: list) -> Iterator[list[list[int]]]:
    """In batches of 16; every third is left after 2 to 8 pieces, in the middle of a step with drafts."""
    for first in range(0, len(prompts), 16):
        numbers = range(first, min(first + 16, len(prompts)))
        streams = {i: llm.stream(prompts[i], params[i]) for i in numbers}
        texts = {i: list(next(streams[i]).outputs[0].token_ids) for i in numbers}
        for i in sorted(numbers, key=lambda i: i % 3):  # those to be left first, while the others run
            for num_pieces, piece in enumerate(streams[i], start=1):
                texts[i] += piece.outputs[0].token_ids
                if i % 3 == 0 and num_pieces > i % 7:
                    streams[i].close()
                    break
        yield from ([texts[i]] for i in numbers)


def _are_equal(way: Way, found: list[list[int]], expected: list[list[int]]) -> bool:
    """Aborted texts as far as both go: a piece with drafts has more tokens."""
    if not way.ends_early:
        return found == expected
    return all(a[: len(b)] == b[: len(a)] for a, b in zip(found, expected, strict=True))


def _is_tie(
    check: TieCheck, prompt: list[int], found: list[list[int]], expected: list[list[int]], temperature: float, seed: int
) -> bool:
    """Of every sample that differs, the first other token."""
    for sample_index, (one, other) in enumerate(zip(found, expected, strict=True)):
        at = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        if at is not None:
            tokens = check.drawn(prompt, one[:at], temperature, seed, sample_index)
            if not {one[at], other[at]} <= tokens:
                return False
    return True


def _count_ambiguous(check: TieCheck, prompts: list[list[int]], expected: Texts, temperature: float) -> str:
    """At the last positions of every fifth text; each token is among those that are drawn there again."""
    places, ambiguous = range(0, len(prompts), 5), 0
    for i in places:
        text = expected[i][0]
        tokens = check.drawn(prompts[i], text[:-1], temperature, i)
        if text[-1] not in tokens:
            raise SystemExit(f"the last token of text {i} is none of those drawn again, {tokens}: the check is wrong")
        ambiguous += len(tokens) > 1
    return f"{ambiguous} of {len(places)}"
