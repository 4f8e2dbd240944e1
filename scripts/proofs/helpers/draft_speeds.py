"""What drafts gain where texts repeat themselves, and what they cost where not: ratios of engines in turns.

Two engines of one process generate the same texts side by side (`engines_in_turns.py`), several times; the median of
the ratios counts.
"""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from scripts.proofs.helpers.engines_in_turns import rates_in_turns
from scripts.proofs.parity import read_goldens

OPTIONS = {"max_model_len": 1024, "max_num_seqs": 32, "max_num_batched_tokens": 512}
DRAFTS = {
    "n-grams": {"method": "ngram", "num_speculative_tokens": 7},
    # Turns repeat the same texts: with earlier outputs all but the first would know them.
    "suffixes": {"method": "suffix", "num_speculative_tokens": 7, "suffix_decoding_cached_tokens": 0},
}
WITH_EARLIER = {"method": "suffix", "num_speculative_tokens": 7}
NUM_TURNS = 10
LEAST_TOKENS_A_PASS, LEAST_UNSUITED, LEAST_BATCH = 3.0, 0.95, 0.97
LEAST_COPY = {"n-grams": 2.0, "suffixes": 1.15}
REVISION = "\n\nThe same again, with a title:\n\n"
NUM_REVISED, NUM_REVISIONS = 8, 3

Texts = list[list[int]]
Law = tuple[str, float, float]
"""What is measured, what was found, and the least that is allowed."""


def speeds(model: str) -> list[Law]:
    """What looked-up drafts gain and cost, of a model in its own data type."""
    from jaxserve import LLM

    plain, goldens = LLM(model, **OPTIONS), read_goldens(model)[0]
    engines = {name: LLM(model, **OPTIONS, speculative_config=config) for name, config in DRAFTS.items()}
    laws = list[Law]()
    for name, drafting in engines.items():
        laws += [*_copy_speeds(name, plain, drafting, goldens), *unsuited_speeds(name, plain, drafting, goldens)]
    least = _revised(engines["n-grams"], goldens)
    found = _revised(LLM(model, **OPTIONS, speculative_config=WITH_EARLIER), goldens)
    return [*laws, ("tokens a pass, answers that are revised, of suffixes; at least those of n-grams", found, least)]


def _copy_speeds(name: str, plain, drafting, goldens: Texts) -> list[Law]:
    from jaxserve import SamplingParams

    # Its tokens are copied with margins of 2 nats and more, so that no rounding ends the copy, as in other passages.
    passage = [token for prompt in goldens for token in prompt][1200:1400]
    encode = plain.get_tokenizer().encode
    again = encode("\n\nThe same text again:\n")
    # Of one copy the model may repeat some tokens and go on with words of its own.
    copy = [*encode("Text:\n"), *passage, *again, *passage, *again, *passage[:16]]
    greedy = SamplingParams(temperature=0, max_tokens=184, ignore_eos=True)
    gain = ratio(plain, drafting, [copy], greedy)
    return [
        (f"{name}: tokens of the passage that are copied, of 184", _num_copied(plain, copy, passage[16:]), 184),
        (f"{name}: tokens/s of a copied text, with drafts over without", gain, LEAST_COPY[name]),
        (f"{name}: tokens a pass with drafts, of this text", tokens_a_pass(drafting, copy, 184), LEAST_TOKENS_A_PASS),
    ]


def unsuited_speeds(name: str, plain, drafting, goldens: Texts, num_turns: int = NUM_TURNS) -> list[Law]:
    """Texts that drafts may not suit: an engine that sees so does without."""
    from jaxserve import SamplingParams

    random = [np.random.default_rng(i).integers(100, 40_000, 24).tolist() for i in range(32)]
    briefly = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    sampled = [SamplingParams(temperature=1.0, seed=i, max_tokens=64, ignore_eos=True) for i in range(32)]
    cases = [
        ("tokens/s of a random text alone", random[:1], sampled[0], LEAST_UNSUITED),
        ("of 32 random texts", random, sampled, LEAST_BATCH),
        ("of 32 goldens' prompts, greedy", goldens[:32], briefly, LEAST_BATCH),
    ]
    return [
        (f"{name}: {law}", ratio(plain, drafting, texts, params, num_turns), least)
        for law, texts, params, least in cases
    ]


def ratio(plain, drafting, texts: Texts, params, num_turns: int = NUM_TURNS) -> float:
    """Tokens/s with drafts over those without."""
    found: list[float] = []
    for turn in range(-1, num_turns):  # the first compiles, and measures what drafts take
        without, with_drafts = rates_in_turns((plain, drafting), texts, params, first=turn % 2)
        found.append(with_drafts / without)
    return statistics.median(found[1:])


def _num_copied(llm, prompt: list[int], rest: list[int]) -> int:
    from jaxserve import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=len(rest), ignore_eos=True)
    text = llm.generate([prompt], params, use_tqdm=False)[0].outputs[0].token_ids
    return next((i for i, (found, wanted) in enumerate(zip(text, rest, strict=True)) if found != wanted), len(rest))


def _revised(llm, goldens: Texts) -> float:
    """Tokens a pass in conversations in which each answer is asked for again."""
    revision, found = llm.get_tokenizer().encode(REVISION), list[float]()
    for prompt in goldens[:NUM_REVISED]:
        text = prompt
        for _ in range(NUM_REVISIONS):
            answer = list[int]()
            found.append(tokens_a_pass(llm, text, 64, answer))
            text = [*text, *answer, *revision]
    return statistics.mean(found)


def tokens_a_pass(llm, text: list[int], num_tokens: int, answer: list[int] | None = None) -> float:
    """In passes that may draft, of a greedy text, which is appended to `answer`."""
    from jaxserve import SamplingParams
    from tests.support.drafting import always, counted

    speculation = llm.parts.engine.scheduler.state.speculation
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    with counted_passes(always(llm)) as passes, counted(llm) as seen:
        (output,) = llm.generate([text], params, use_tqdm=False)
    llm.parts.engine.scheduler.state.speculation = speculation
    if answer is not None:
        answer += output.outputs[0].token_ids
    return 1 + sum(accepted for _, accepted in seen) / sum(passes)


def drafting_share(llm, texts: Texts, params) -> float:
    """Of the passes of these texts, those in verify buckets."""
    runner, passes = llm.parts.runner, {True: 0, False: 0}
    collect = runner.collect

    def collect_and_count(ticket):
        outcome = collect(ticket)
        passes[outcome.drafts is not None] += outcome.num_rounds
        return outcome

    with patch.object(runner, "collect", collect_and_count):
        llm.generate(texts, params, use_tqdm=False)
    return passes[True] / sum(passes.values())


@contextmanager
def counted_passes(llm) -> Iterator[list[int]]:
    """Yields the numbers of passes of the steps in verify buckets."""
    runner, passes = llm.parts.runner, list[int]()
    collect = runner.collect

    def collect_and_count(ticket):
        outcome = collect(ticket)
        passes.extend([outcome.num_rounds] if outcome.drafts is not None else [])
        return outcome

    with patch.object(runner, "collect", collect_and_count):
        yield passes
