"""Host: synthetic datasets: prompts of random words, with common prefixes where specified."""

import math

import numpy as np

from jaxserve.bench.serving.datasets.request_specs import (
    MAX_DEFAULT_PROMPTS,
    Dataset,
    RequestSpec,
    Selection,
    Words,
    random_words,
)
from jaxserve.bench.serving.options import PrefixRepetitionOptions, RandomOptions


def random_prompts(options: RandomOptions) -> Dataset:
    """Prompts of random words, all with the same prefix if one is specified."""

    def draw(selection: Selection) -> list[RequestSpec]:
        count, lens, words = selection.count or MAX_DEFAULT_PROMPTS, selection.lengths(), selection.words()

        def around(middle: int) -> list[int]:
            low, high = (middle * (1 + sign * options.random_range_ratio) for sign in (-1, 1))
            return lens.integers(max(1, math.floor(low)), math.ceil(high), count, endpoint=True).tolist()

        prefix = random_words(words, options.random_prefix_len)
        input_lens, output_lens = around(options.random_input_len), around(options.random_output_len)
        return [
            RequestSpec(_joined(prefix, random_words(words, n)), output_len)
            for n, output_len in zip(input_lens, output_lens, strict=True)
        ]

    return draw


def prefix_repetition(options: PrefixRepetitionOptions) -> Dataset:
    """Prompts with one of several prefixes, each equally often (up to one), in random order."""

    def draw(selection: Selection) -> list[RequestSpec]:
        count, words = selection.count or MAX_DEFAULT_PROMPTS, selection.words()
        num_prefixes = options.prefix_repetition_num_prefixes
        prefixes = [random_words(words, options.prefix_repetition_prefix_len) for _ in range(num_prefixes)]
        order: list[int] = (selection.lengths().permutation(count) % num_prefixes).tolist()
        suffix_len, output_len = options.prefix_repetition_suffix_len, options.prefix_repetition_output_len
        return [RequestSpec(_joined(prefixes[i], random_words(words, suffix_len)), output_len) for i in order]

    return draw


def _joined(prefix: np.ndarray, suffix: np.ndarray) -> Words:
    return Words(np.concatenate([prefix, suffix]), len(prefix) + len(suffix))
