"""Counts of sampled texts, and whether two engines draw them by the same law."""

from collections import Counter
from functools import cache

import numpy as np
from jax.scipy.special import gammaincc

from jaxserve import SamplingParams
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.support.drafting import always, counted
from tests.support.eagle_drafts import prompts
from tests.support.tiny_engines import tiny_engine

NUM_TEXTS, NUM_ROWS = 480, 8
SKIP = {"method": "layer_skip", "skip_layers": (1,), "num_speculative_tokens": 3}


def engine_with_drafts(tensor_parallel_size=1, **options):
    config = SpeculativeConfig(**options)
    return always(tiny_engine("llama3", speculative_config=config, tensor_parallel_size=tensor_parallel_size))


@cache
def counts_of_texts(llm, first_seed, temperature=0.5):
    """Of texts of four tokens, each of the three likeliest; and the share of accepted drafts."""
    prompt, found, drafts = prompts()[1][:3], Counter[tuple[int, ...]](), np.zeros(2, int)
    for first in range(first_seed, first_seed + NUM_TEXTS, NUM_ROWS):  # while requests wait, no row drafts
        common = {"temperature": temperature, "top_k": 3, "max_tokens": 4, "ignore_eos": True}
        params = [SamplingParams(**common, seed=first + i) for i in range(NUM_ROWS)]
        with counted(llm) as seen:
            outputs = llm.generate([prompt] * NUM_ROWS, params, use_tqdm=False)
        drafts += np.sum(seen, axis=0, dtype=int) if seen else 0
        found.update(tuple(out.outputs[0].token_ids) for out in outputs)
    return found, drafts[1] / max(drafts[0], 1)


def p_of_one_law(one, other):
    """Of the two-sample chi-square test; rare texts share a cell."""
    texts = sorted(one.keys() | other.keys())
    table = np.array([[counts.get(text, 0) for text in texts] for counts in (one, other)], float)
    rare = table.sum(axis=0) < 10
    table = np.concatenate([table[:, ~rare], table[:, rare].sum(axis=1, keepdims=True)], axis=1)
    table = table[:, table.sum(axis=0) > 0]
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return float(gammaincc((table.shape[1] - 1) / 2, statistic / 2))
