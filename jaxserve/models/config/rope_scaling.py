"""Host: rotary-embedding scaling beyond the training context (Llama 3, YaRN, LongRoPE), as divisors of the frequencies
and a factor of cosines and sines."""

import math

from jaxserve.models.config.rope import LongRope, Rope


def llama3_factors(
    base: float, dim: int, factor: float, low_freq_factor: float, high_freq_factor: float, original_len: int
) -> tuple[float, ...]:
    """Llama 3.1's scaling: low frequencies are divided by `factor`, high ones kept, those between interpolated."""
    factors: list[float] = []
    for f in Rope(base).frequencies(dim):
        turns = original_len * f / (2 * math.pi)
        smooth = min(1.0, max(0.0, (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)))
        factors.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return tuple(factors)


def yarn_factors(
    base: float,
    dim: int,
    factor: float,
    original_len: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    is_truncated: bool = True,
) -> tuple[float, ...]:
    """YaRN (arXiv 2309.00071, section 3.2): a linear ramp over the frequencies.

    Frequencies with more than `beta_fast` turns in the original context are kept, those with fewer than `beta_slow` are
    divided by `factor`, with a ramp between. is_truncated: round the ramp's ends outwards.
    """

    def index(turns: float) -> float:
        return dim * math.log(original_len / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = index(beta_fast), index(beta_slow)
    if is_truncated:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = [min(1.0, max(0.0, (i - low) / max(high - low, 0.001))) for i in range(dim // 2)]
    return tuple(1.0 / (r / factor + (1.0 - r)) for r in ramp)


def yarn_attention(factor: float, weight: float = 1.0) -> float:
    """YaRN's factor of cosines and sines (section 3.4). weight: the checkpoint's `mscale`."""
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0


def longrope(
    base: float, dim: int | None, short: tuple[float, ...], long: tuple[float, ...], attention: float, original_len: int
) -> Rope:
    """LongRoPE (arXiv 2402.13753): one table of factors up to `original_len` tokens of context, one for longer ones."""
    second = None if short == long else LongRope(long, original_len)
    return Rope(base, None if set(short) == {1.0} else short, attention, dim, second)


def longrope_attention(factor: float, original_len: int) -> float:
    return 1.0 if factor <= 1.0 else math.sqrt(1.0 + math.log(factor) / math.log(original_len))
