"""Whether texts of an engine with adapters are those of merged weights, to which error, and with how many ties."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxserve import LoRARequest
from scripts.proofs.helpers.laws import Law
from scripts.proofs.lora.merged_scores import MergedModel

MOST_ERROR = 1e-4
"""Of log-probabilities."""
TIE = 1e-5
"""How far below the likeliest token's log-probability another one may lie that the engine has chosen."""
LEAST_EXCHANGED = 1e-2
"""What the control must show: the error of each text where the adapters are exchanged."""


@dataclass
class Equality:
    """lags: log-probabilities by which tokens that are not the likeliest lie below it. errors: the largest of each
    text."""

    num_equal: int = 0
    lags: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def laws(self, way: str) -> list[Law]:
        ties = [lag for lag in self.lags if lag <= TIE]
        return [
            (f"{way}: texts with merged weights' greedy tokens, ties among them, of {len(self.errors)}",
             self.num_equal, len(self.errors), None),
            (f"{way}: tokens that are ties within {TIE}", len(ties), None, None),
            (f"{way}: largest error of a log-probability", max(self.errors), None, MOST_ERROR),
        ]  # fmt: skip


def compare(
    model: MergedModel, prompts: list[list[int]], adapters: list[LoRARequest | None], outputs: list[Any]
) -> Equality:
    """outputs: of `generate`, with logprobs=0, or without (then errors are not known, and zero)."""
    found, by_adapter = Equality(), defaultdict[LoRARequest | None, list[int]](list)
    for i, adapter in enumerate(adapters):
        by_adapter[adapter].append(i)
    for adapter, numbers in by_adapter.items():
        texts = [outputs[i].outputs[0].token_ids for i in numbers]
        scores = model.scores(adapter, [prompts[i] for i in numbers], texts)
        for i, (own, likeliest) in zip(numbers, scores, strict=True):
            lags = (likeliest - own)[likeliest > own]
            found.num_equal += bool((lags <= TIE).all())
            found.lags += lags.tolist()
            found.errors.append(_error(outputs[i].outputs[0], own))
    return found


def exchanged(adapters: list[LoRARequest | None]) -> list[LoRARequest | None]:
    """For each another one than its own: the control."""
    return [next((b for b in adapters[i:] + adapters[:i] if b != a), None) for i, a in enumerate(adapters)]


def control(
    model: MergedModel, prompts: list[list[int]], adapters: list[LoRARequest | None], outputs: list[Any], count: int
) -> list[Law]:
    """The first texts under exchanged adapters."""
    wrong = compare(model, prompts[:count], exchanged(adapters)[:count], outputs[:count])
    return [
        (
            f"control, adapters exchanged: texts with merged weights' greedy tokens, of {count}",
            wrong.num_equal,
            None,
            0,
        ),
        ("control, adapters exchanged: smallest error of a text", min(wrong.errors), LEAST_EXCHANGED, None),
    ]


def _error(sample: Any, expected: np.ndarray) -> float:
    if sample.logprobs is None:
        return 0.0
    found = [entry[token].logprob for entry, token in zip(sample.logprobs, sample.token_ids, strict=True)]
    return float(np.abs(np.array(found) - expected).max())
