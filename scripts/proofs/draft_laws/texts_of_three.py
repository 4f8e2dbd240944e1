"""Whether an engine's texts have the law of its model: 2,000 texts of four tokens, each of the three likeliest, against
the probabilities of all 81."""

from typing import NamedTuple

import numpy as np

NUM_TEXTS, NUM_ROWS = 2000, 16
NUM_TOKENS, TOP_K = 4, 3
TEMPERATURE = 1.2

Law = dict[tuple[int, ...], float]


class Drawn(NamedTuple):
    """p: how likely texts of the law differ from it as much as these, by the chi-square test. proposed, accepted:
    drafts."""

    p: float
    proposed: int = 0
    accepted: int = 0


def exact_law(llm, prompt: list[int]) -> Law:
    """The probability of each text, from log-probabilities of the model's likeliest tokens after every beginning."""
    from jaxserve import SamplingParams

    law: Law = {(): 1.0}
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=TOP_K)
    for _ in range(NUM_TOKENS):
        outputs = llm.generate([[*prompt, *text] for text in law], params, use_tqdm=False)
        longer = {}
        for (text, likely), output in zip(law.items(), outputs, strict=True):
            found = {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()}
            ranked = sorted(found, key=lambda token, found=found: -found[token])[:TOP_K]
            weights = np.exp(np.array([found[token] for token in ranked]) / TEMPERATURE)
            longer |= {(*text, token): likely * w for token, w in zip(ranked, weights / weights.sum(), strict=True)}
        law = longer
    return law


def drawn(llm, prompt: list[int], law: Law, temperature: float = TEMPERATURE) -> Drawn:
    """Texts of an engine, against a law; its drafts are counted if it has any."""
    from jaxserve import SamplingParams
    from tests.support.drafting import counted
    from tests.support.sampling_laws import chi_square_p

    number, found = {text: i for i, text in enumerate(law)}, list[int]()
    common = {"temperature": temperature, "top_k": TOP_K, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    with counted(llm) as seen:
        for first in range(0, NUM_TEXTS, NUM_ROWS):  # while requests wait, no row drafts
            params = [SamplingParams(**common, seed=first + i) for i in range(NUM_ROWS)]
            outputs = llm.generate([prompt] * NUM_ROWS, params, use_tqdm=False)
            found += [number[tuple(output.outputs[0].token_ids)] for output in outputs]
    p = chi_square_p(np.array(found), np.array(list(law.values())))
    return Drawn(p, *(int(total) for total in np.sum(seen or [(0, 0)], axis=0)))
