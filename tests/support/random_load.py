"""A random mixed load on an engine: requests of all kinds that arrive, end and are aborted, for so many steps."""

from collections import Counter, deque

import jax
import numpy as np

from jaxserve import LLM, SamplingParams
from jaxserve.engine.inputs.prompt import Prompt

FEATURES = (
    {"temperature": 0.0},
    {"logprobs": 2},
    {"n": 3, "presence_penalty": 1.0, "logit_bias": {4: 1.0}},
    {"top_p": 0.9, "top_k": 50, "prompt_logprobs": 1, "allowed_token_ids": [1, 2, 3]},
    {"temperature": 0.0, "stop_token_ids": [7], "min_tokens": 2},
    {"min_p": 0.1, "repetition_penalty": 1.2},
)
COMPILATION = "/jax/core/compile/backend_compile_duration"


class RandomLoad:
    """Adds more requests than there are slots, with pauses in which the engine runs empty."""

    def __init__(self, llm: LLM, seed: int = 0, *, max_prompt_len: int, max_output_len: int):
        self.llm, self.random = llm, np.random.default_rng(seed)
        self.max_prompt_len, self.max_output_len = max_prompt_len, max_output_len
        self.buckets: Counter[str] = Counter()
        self.num_steps = self.num_rounds = self.num_aborted = self.num_requests = 0
        self._running_ids: list[str] = []
        self._recent: deque[list[int]] = deque(maxlen=32)  # prompts

    def run(self, num_steps: int) -> None:
        engine = self.llm.parts.engine
        engine.observer = self._observe
        while self.num_steps < num_steps:
            for _ in range(self.random.integers(0, 2 * self.llm.parts.sizes.max_num_seqs)):
                self._add()
            for _ in range(self.random.integers(1, 60)):
                if engine.has_work:
                    engine.step()
                if self._running_ids and self.random.random() < 0.02:
                    engine.scheduler.abort(self._running_ids.pop(self.random.integers(len(self._running_ids))))
                    self.num_aborted += 1
            if self.random.random() < 0.3:
                for _ in engine.drain():
                    pass
        for _ in engine.drain():
            pass
        engine.observer = None

    def _add(self) -> None:
        params = SamplingParams(
            max_tokens=int(self.random.integers(2, self.max_output_len + 1)),
            seed=int(self.random.integers(2**31)),
            **FEATURES[self.random.integers(len(FEATURES))],
        )
        vocab_size = self.llm.parts.model.vocab_size
        prompt = self.random.integers(3, vocab_size, self.random.integers(1, self.max_prompt_len + 1)).tolist()
        if self._recent and self.random.random() < 0.3:  # shares a prefix with a recent prompt
            beginning = self._recent[self.random.integers(len(self._recent))]
            prompt = (beginning[: self.random.integers(1, len(beginning) + 1)] + prompt)[: self.max_prompt_len]
        self._recent.append(prompt)
        (request,) = self.llm.admit([Prompt(None, prompt)], params)
        self.llm.parts.engine.add(request)
        self._running_ids.append(request.request_id)
        self.num_requests += 1

    def _observe(self, record) -> None:
        self.num_steps += 1
        self.num_rounds += record.num_rounds
        self.buckets[str(record.bucket)] += 1


class Compilations:
    """Counts compilations by XLA, cached ones included, within its context."""

    def __enter__(self) -> "Compilations":
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._count_event)
        return self

    def __exit__(self, *_) -> None:
        jax.monitoring.unregister_event_duration_listener(self._count_event)

    def _count_event(self, event: str, duration_s: float, **_) -> None:
        self.count += event == COMPILATION
