"""Makes the goldens of `scripts/prove score`: transformers' log-probabilities of continuations on a real model.

Run in an environment with requirements/oracle.txt:

    python scripts/goldens/score.py MODEL.gguf prompts.txt tests/goldens/score-NAME.npz

prompts.txt: a long text. 50 contexts of 60 to 200 tokens are cut from it, each with four continuations of 2 to 12
tokens: the text that follows, the model's greedy continuation, and two from elsewhere. float32, one pair at a time.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

NUM_CONTEXTS = 50


def cut_contexts(ids: list[int], rng: np.random.Generator) -> list[tuple[list[int], list[list[int]]]]:
    """Contexts, each with the text that follows and two continuations from elsewhere."""

    def piece(length: int) -> tuple[list[int], int]:
        start = int(rng.integers(0, len(ids) - length))
        return ids[start : start + length], start + length

    contexts = []
    for _ in range(NUM_CONTEXTS):
        context, end = piece(int(rng.integers(60, 201)))
        lens = rng.integers(2, 13, 3).tolist()
        contexts.append((context, [ids[end : end + lens[0]], *(piece(length)[0] for length in lens[1:])]))
    return contexts


@torch.no_grad()
def judge(model, context: list[int], continuation: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(log-probability of each token, the largest logit minus the token's logit)."""
    ids = torch.tensor([context + continuation])
    logits = model(ids).logits[0, len(context) - 1 : -1].double()
    own = logits.gather(1, torch.tensor(continuation)[:, None])[:, 0]
    return (own - logits.logsumexp(-1)).numpy(), (logits.max(-1).values - own).numpy()


@torch.no_grad()
def greedy(model, context: list[int], num_tokens: int) -> list[int]:
    tokens: list[int] = []
    ids, cache = torch.tensor([context]), None
    for _ in range(num_tokens):
        out = model(ids, past_key_values=cache, use_cache=True)
        cache, token = out.past_key_values, int(out.logits[0, -1].argmax())
        tokens.append(token)
        ids = torch.tensor([[token]])
    return tokens


def main(gguf: str, text_file: str, out: str) -> None:
    torch.set_num_threads(1)
    path, rng = Path(gguf), np.random.default_rng(12)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    beginning = tokenizer("")["input_ids"]
    ids = tokenizer(Path(text_file).read_text("utf-8")[:600_000], add_special_tokens=False)["input_ids"]
    contexts, continuations, logprobs, gaps = [], [], [], []
    for i, (context, choices) in enumerate(cut_contexts(ids, rng)):
        context = beginning + context
        choices.insert(1, greedy(model, context, int(rng.integers(2, 13))))
        judged = [judge(model, context, choice) for choice in choices]
        contexts.append(context)
        continuations += choices
        logprobs += [j[0] for j in judged]
        gaps += [j[1] for j in judged]
        print(f"{i + 1}/{NUM_CONTEXTS} ({len(context)} tokens)", flush=True)
    np.savez_compressed(
        out,
        context_lens=np.array([len(c) for c in contexts], np.int32),
        context_ids=np.concatenate([np.array(c, np.int32) for c in contexts]),
        continuation_lens=np.array([len(c) for c in continuations], np.int32),
        continuation_ids=np.concatenate([np.array(c, np.int32) for c in continuations]),
        logprobs=np.concatenate(logprobs).astype(np.float32),
        gaps=np.concatenate(gaps).astype(np.float32),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
