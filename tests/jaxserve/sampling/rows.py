"""Batches of rows for tests, and the expected sampling distribution in float64 numpy."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc

from jaxserve.core.row_layout import FLOAT_FIELDS, SAMPLING_FIELDS, STEP_FIELDS, pack_sampling
from jaxserve.sampling.sampling_batch import SamplingBatch, read_rows

NEUTRAL = dict.fromkeys(SAMPLING_FIELDS, 0) | {
    **dict.fromkeys(FLOAT_FIELDS, 0.0),
    "temperature": 1.0,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "num_logprobs": -1,
    "num_prompt_logprobs": -1,
}


def packed_rows(rows: list[dict]) -> np.ndarray:
    """Rows as the host packs them; each gives its slot and the fields that differ from NEUTRAL."""
    steps = [[row.get("slot", i) if name == "slot" else 1 for name in STEP_FIELDS] for i, row in enumerate(rows)]
    sampling = [pack_sampling(NEUTRAL | {k: v for k, v in row.items() if k != "slot"}) for row in rows]
    return np.concatenate([np.array(steps, np.int32), np.stack(sampling)], axis=1)


def make_batch(rows: list[dict]) -> SamplingBatch:
    return read_rows(jnp.asarray(packed_rows(rows)))


def kept(z, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) -> np.ndarray:
    """bool[V]: min-p, then top-k, then top-p of the remaining mass; values equal to a threshold are kept."""
    z = np.asarray(z, np.float64)
    is_kept = z > -np.inf
    if min_p > 0:
        is_kept &= z >= z.max() + temperature * np.log(np.float64(min_p))
    if 0 < top_k < len(z):
        is_kept &= z >= np.sort(z)[-top_k]
    if top_p < 1:
        weights = np.where(is_kept, np.exp((z - z.max()) / temperature), 0)
        order = np.argsort(-z, kind="stable")
        before = np.cumsum(weights[order]) - weights[order]
        last = z[order][np.flatnonzero(before < top_p * weights.sum())[-1]]
        is_kept &= z >= last
    return is_kept


def law(z, temperature=1.0, **truncation) -> np.ndarray:
    """float64[V]: the probability of each token."""
    z = np.asarray(z, np.float64)
    weights = np.where(kept(z, temperature, **truncation), np.exp((z - z.max()) / temperature), 0)
    return weights / weights.sum()


def p_value(tokens: np.ndarray, probabilities: np.ndarray) -> float:
    """p-value of the chi-square test; 0 if a drawn token has probability zero. Rare tokens share a cell."""
    counts = np.bincount(tokens, minlength=len(probabilities))
    if counts[probabilities == 0].any():
        return 0.0
    expected = probabilities * len(tokens)
    is_rare = expected < 5
    counts = np.append(counts[~is_rare], counts[is_rare].sum())
    expected = np.append(expected[~is_rare], expected[is_rare].sum())
    is_cell = expected > 0
    statistic = ((counts - expected)[is_cell] ** 2 / expected[is_cell]).sum()
    return float(gammaincc((is_cell.sum() - 1) / 2, statistic / 2)) if is_cell.sum() > 1 else 1.0
