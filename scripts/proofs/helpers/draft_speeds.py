"""What drafts gain where texts repeat themselves, and what they cost where not: ratios of engines in turns.

Two engines of one process generate the same texts, one after the other; the order changes from turn to turn, and the
median of the turns' ratios counts. On a machine of two virtual cores single ratios scatter by 5 %.
"""

import statistics
import time

import numpy as np

from scripts.proofs.parity import read_goldens

OPTIONS = {"max_model_len": 1024, "max_num_seqs": 32, "max_num_batched_tokens": 512}
DRAFTS = {"method": "ngram", "num_speculative_tokens": 7}
NUM_TURNS = 10
LEAST_TOKENS_A_PASS, LEAST_COPY, LEAST_UNSUITED, LEAST_BATCH = 3.0, 2.0, 0.95, 0.97

Texts = list[list[int]]


def speeds(model: str) -> list[tuple[str, float, float]]:
    """(law, measured, least) of a model in its own data type."""
    from jaxserve import LLM, SamplingParams
    from tests.support.drafting import counted

    plain, drafting = LLM(model, **OPTIONS), LLM(model, **OPTIONS, speculative_config=DRAFTS)
    goldens = read_goldens(model)[0]
    passage = [token for prompt in goldens for token in prompt][:200]
    encode = plain.get_tokenizer().encode
    copy = [*encode("Text:\n"), *passage, *encode("\n\nThe same text again:\n"), *passage[:16]]
    random = [np.random.default_rng(i).integers(100, 40_000, 24).tolist() for i in range(32)]
    greedy, briefly = (SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for count in (184, 64))
    sampled = [SamplingParams(temperature=1.0, seed=i, max_tokens=64, ignore_eos=True) for i in range(32)]

    def ratio(texts: Texts, params) -> float:
        found: list[float] = []
        for turn in range(-1, NUM_TURNS):  # the first compiles, and measures what drafts take
            order = (plain, drafting) if turn % 2 else (drafting, plain)
            rates = {id(llm): _rate(llm, texts, params) for llm in order}
            found.append(rates[id(drafting)] / rates[id(plain)])
        return statistics.median(found[1:])

    copied = ratio([copy], greedy)
    with counted(drafting) as seen:
        drafting.generate([copy], greedy, use_tqdm=False)
    rounds = [step for step in seen if step[0]]
    width = DRAFTS["num_speculative_tokens"]
    a_pass = 1 + sum(accepted for _, accepted in rounds) / (sum(proposed for proposed, _ in rounds) / width)
    return [
        ("tokens a pass with drafts, a copied text", a_pass, LEAST_TOKENS_A_PASS),
        ("tokens/s of the copied text, with drafts over without", copied, LEAST_COPY),
        ("the same of a random text alone", ratio(random[:1], sampled[0]), LEAST_UNSUITED),
        ("the same of 32 random texts", ratio(random, sampled), LEAST_BATCH),
        ("the same of 32 goldens' prompts, greedy", ratio(goldens[:32], briefly), LEAST_BATCH),
    ]


def _rate(llm, texts: Texts, params) -> float:
    """Tokens/s."""
    started = time.perf_counter()
    outputs = llm.generate(texts, params, use_tqdm=False)
    return sum(len(output.outputs[0].token_ids) for output in outputs) / (time.perf_counter() - started)
