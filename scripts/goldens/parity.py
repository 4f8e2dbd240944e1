"""Makes the goldens of `scripts/prove parity`: transformers' greedy tokens and log-probabilities of a real model.

Run in an environment with requirements/oracle.txt:

    python scripts/goldens/parity.py MODEL.gguf prompts.txt tests/goldens/parity-NAME.npz

prompts.txt: a long text, from which 100 prompts of 1 to 700 tokens are cut. The tokens are drawn in float32, one prompt
at a time. Their log-probabilities are stored as computed in float64, and in float32 to show the error of that: with
Gemma 3 270M up to 1e-4.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, AutoTokenizer

NUM_PROMPTS, NUM_TOKENS, MAX_LEN = 100, 64, 700


def cut_prompts(tokenizer, text: str) -> list[list[int]]:
    """Prompts with log-uniform lengths in [1, 700], at uniform positions of the text."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    rng = np.random.default_rng(11)
    lens = np.exp(rng.uniform(0, np.log(MAX_LEN), NUM_PROMPTS)).astype(int)
    starts = rng.integers(0, len(ids) - MAX_LEN, NUM_PROMPTS)
    return [ids[s : s + n] for s, n in zip(starts, lens, strict=True)]


class Float64(TorchFunctionMode):
    """What a model would compute in float32 whatever its dtype (norms, softmax), in float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if arg is torch.float32 else arg for arg in args)
        kwargs = {name: torch.float64 if arg is torch.float32 else arg for name, arg in (kwargs or {}).items()}
        return func(*args, **kwargs)


@torch.no_grad()
def float64_logprobs(model, prompt: list[int], tokens: list[int]) -> np.ndarray:
    """The log-probability of each token after those before it; model: in float64."""
    with Float64():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    assert logits.dtype == torch.float64
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0].numpy()


@torch.no_grad()
def greedy(model, prompt: list[int]) -> tuple[list[int], list[float], list[float]]:
    """(tokens, log-probability of each, gap between the two largest logits at each step)."""
    tokens, logprobs, gaps, cache = [], [], [], None
    ids = torch.tensor([prompt])
    for _ in range(NUM_TOKENS):
        out = model(ids, past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[0, -1].double()
        top = logits.topk(2).values
        token = int(logits.argmax())
        tokens.append(token)
        logprobs.append(float(logits.log_softmax(-1)[token]))
        gaps.append(float(top[0] - top[1]))
        ids = torch.tensor([[token]])
    return tokens, logprobs, gaps


def main(gguf: str, text_file: str, out: str) -> None:
    torch.set_num_threads(1)
    path = Path(gguf)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    options = {"gguf_file": path.name, "dtype": torch.float32, "attn_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(path.parent, **options).eval()
    prompts = cut_prompts(tokenizer, Path(text_file).read_text("utf-8")[:600_000])
    rows = []
    for i, prompt in enumerate(prompts):
        rows.append(greedy(model, prompt))
        print(f"{i + 1}/{len(prompts)} ({len(prompt)} tokens)", flush=True)
    tokens, float32_logprobs, gaps = (np.array(column) for column in zip(*rows, strict=True))
    model = model.double()
    logprobs = []
    for i, (prompt, row) in enumerate(zip(prompts, tokens.tolist(), strict=True)):
        logprobs.append(float64_logprobs(model, prompt, row))
        print(f"in float64: {i + 1}/{len(prompts)}", flush=True)
    np.savez_compressed(
        out,
        prompt_lens=np.array([len(p) for p in prompts], np.int32),
        prompt_ids=np.concatenate([np.array(p, np.int32) for p in prompts]),
        tokens=tokens.astype(np.int32),
        logprobs=np.array(logprobs, np.float32),
        float32_logprobs=float32_logprobs.astype(np.float32),
        gaps=gaps.astype(np.float32),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
