"""The settings and the logits that scripts/benchmarks/sampling/bench_sampling.py walks through."""

from typing import Any

SCALES = {"flat": 1e-6, "usual": 1.0, "peaked": 30.0}  # standard deviation of the logits, before the temperature
OFF: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "top_k": 0,
    "num_logprobs": -1,
    "has_penalties": False,
    "has_edits": False,
}
GREEDY: dict[str, Any] = {"temperature": 0.0}
PENALTIES = {"has_penalties": True, "presence_penalty": 2.0, "frequency_penalty": -2.0, "repetition_penalty": 2.0}

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": GREEDY,
    "temperature 1": {},
    "temperature 1e-6": {"temperature": 1e-6},
    "temperature 1e6": {"temperature": 1e6},
    "top-p 1e-6": {"top_p": 1e-6},
    "top-p 0.5": {"top_p": 0.5},
    "top-p 0.9": {"top_p": 0.9},
    "top-p 1 - 1e-6": {"top_p": 1 - 1e-6},
    "temperature 1e6, top-p 1e-6": {"temperature": 1e6, "top_p": 1e-6},
    "temperature 1e6, top-p 0.5": {"temperature": 1e6, "top_p": 0.5},
    "temperature 1e-6, top-p 1e-6": {"temperature": 1e-6, "top_p": 1e-6},
    "top-k 1": {"top_k": 1},
    "top-k 50": {"top_k": 50},
    "top-k 1000": {"top_k": 1000},
    "top-k 200,000, top-p 0.9": {"top_k": 200_000, "top_p": 0.9},
    "min-p 1e-6": {"min_p": 1e-6},
    "min-p 0.1": {"min_p": 0.1},
    "min-p 1": {"min_p": 1.0},
    "top-k 1000, top-p 0.5, min-p 1e-6": {"top_k": 1000, "top_p": 0.5, "min_p": 1e-6},
    "greedy, penalties": {**GREEDY, **PENALTIES},
    "greedy, 300 biases": {**GREEDY, "has_edits": True},
    "greedy, log-probability": {**GREEDY, "num_logprobs": 0},
    "greedy, 20 log-probabilities": {**GREEDY, "num_logprobs": 20},
    "top-p 0.9, penalties, 300 biases, 20 log-probabilities": {
        **PENALTIES, "top_p": 0.9, "has_edits": True, "num_logprobs": 20,
    },
}  # fmt: skip
