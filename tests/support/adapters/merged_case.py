"""A tiny model, adapters of it, and what models with merged weights make of prompts: for tests of whole engines."""

from pathlib import Path
from typing import Any

import pytest

from jaxserve import LLM, LoRARequest, SamplingParams
from jaxserve.core.outputs import RequestOutput
from jaxserve.core.step_plan import StepPlan
from tests.support.adapters.random_adapters import ALL, merged, tiny, write_random_adapter
from tests.support.golden_data import goldens
from tests.support.tiny_engines import tiny_engine

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
LORA = {"enable_lora": True, "max_lora_rank": 20}
KINDS = {"a4": (4, "all"), "a8": (8, "qv"), "a16": (16, "mlp"), "a20": (20, "o")}
PARTS = {"all": ALL, "qv": ("q", "v"), "mlp": ("gate", "up", "down"), "o": ("o",)}


class MergedCase:
    """A model's adapters, the first of which is none, a prompt for each, and what merged weights make of them."""

    def __init__(self, family: str, folder: Path):
        self.family, self.model = family, tiny(family)
        self.adapters: list[LoRARequest | None] = [None]
        for seed, (name, (rank, parts)) in enumerate(KINDS.items()):
            layers = (1,) if parts == "o" else None
            self.adapters.append(write_random_adapter(folder / name, self.model, rank, seed, PARTS[parts], layers))
        self.naive = [merged(folder / f"merged-{i}", self.model, each) for i, each in enumerate(self.adapters)]
        prompt = goldens(family)[1].prompt
        self.prompts = [prompt[: 9 + i] for i in range(len(self.adapters))]
        self.expected = [n.greedy(p, GREEDY.max_tokens) for n, p in zip(self.naive, self.prompts, strict=True)]

    def check(self, llm: LLM, order: list[int] | None = None) -> list[RequestOutput]:
        """The outputs of prompts in this order, each with its adapter; asserts that they are the merged models' texts.

        order: None for each once.
        """
        order = list(range(len(self.adapters))) if order is None else order
        loras = [self.adapters[i] for i in order]
        outs = llm.generate([self.prompts[i] for i in order], GREEDY, lora_request=loras, use_tqdm=False)
        found = [out.outputs[0].token_ids for out in outs]
        assert found == [self.expected[i] for i in order]
        return outs

    def llm(self, **options: Any) -> LLM:
        return tiny_engine(self.family, **LORA | options)


def logprobs_of(out: RequestOutput) -> list[float]:
    """Of the tokens of its one sample."""
    (sample,) = out.outputs
    assert sample.logprobs is not None
    return [entry[token].logprob for entry, token in zip(sample.logprobs, sample.token_ids, strict=True)]


def spied(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[StepPlan]:
    """The plans that are submitted from now on."""
    planned, submit = list[StepPlan](), llm.parts.runner.submit
    monkeypatch.setattr(llm.parts.runner, "submit", lambda plan: planned.append(plan) or submit(plan))
    return planned
