"""Expected sampling distributions in float64 numpy, independent of the code under test."""

import math

import numpy as np


def expected_law(logits, *, temperature, top_k=0, top_p=1.0, min_p=0.0, allowed=None, bias=None) -> np.ndarray:
    """Probabilities after allowed tokens, bias, temperature, min_p, top_k, and top_p of the remaining mass."""
    z = np.array(logits, np.float64)
    if allowed is not None:
        mask = np.full_like(z, -np.inf)
        mask[allowed] = 0.0
        z = z + mask
    for token, value in (bias or {}).items():
        z[token] += value
    p = _softmax(z / temperature)
    p = np.where(p >= min_p * p.max(), p, 0.0)
    if top_k:
        p = np.where(p >= np.sort(p)[-top_k], p, 0.0)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= top_p]] = 0.0
    return p / p.sum()


def penalized(logits, prompt, output, *, repetition_penalty, presence_penalty, frequency_penalty) -> np.ndarray:
    """Logits under the three penalties: repetition counts prompt and output, the others the output only."""
    z = np.array(logits, np.float64)
    for token in set(prompt) | set(output):
        z[token] = z[token] / repetition_penalty if z[token] > 0 else z[token] * repetition_penalty
    for token in set(output):
        z[token] -= presence_penalty + frequency_penalty * output.count(token)
    return z


def chi_square_p(tokens: np.ndarray, law: np.ndarray) -> float:
    """p-value of the tokens under the distribution `law`.

    Tokens with an expected count below 8 share one bin. A sampled token of probability 0 gives 0.
    """
    counts = np.bincount(tokens, minlength=len(law)).astype(float)
    if counts[law == 0].sum():
        return 0.0
    expected = law * len(tokens)
    common = expected >= 8
    seen = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    seen, wanted = (seen, wanted) if wanted[-1] >= 1 else (seen[:-1], wanted[:-1])
    statistic = float(((seen - wanted) ** 2 / wanted).sum())
    return _chi_square_tail(statistic, len(wanted) - 1)


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max())
    return e / e.sum()


def _chi_square_tail(x: float, degrees: int) -> float:
    """Upper tail by Wilson and Hilferty (1931): the cube root of a chi-square variable is nearly normal."""
    if degrees == 0:
        return 1.0
    spread = 2 / (9 * degrees)
    return 0.5 * math.erfc(((x / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(2 * spread))
