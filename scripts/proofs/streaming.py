"""With attention sinks a stream of 20,000 tokens keeps its perplexity and its memory; without them it does not.

SmolLM2 with `kv_policy` (StreamingLLM, arXiv 2309.17453). The stream is jaxserve's own manual, read as one prompt, far
beyond the context that the engine was built with. Its perplexity is compared, at every 100th position, with that of
windows recomputed for each token (the paper's most accurate and slowest baseline), and with a window without sinks,
which must be worse: 1.7 times for so small a model, a thousand times for Llama 2 13B in the paper. A number far outside
the window must not be found, while the same engine finds it where it keeps all KV. Texts that the window holds are
those of plain decoding.
"""

import math
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np

from jaxserve import LLM, SamplingParams
from scripts.proofs.parity import read_goldens

ROOT = Path(__file__).parents[2]
MODEL = "smollm2-135m-instruct"
NUM_SINKS, WINDOW, PAGE_SIZE, CONTEXT = 4, 508, 16, 2048
NUM_TOKENS, EVERY = 20_000, 100
OPTIONS = {
    "dtype": "float32",
    "max_model_len": CONTEXT,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "page_size": PAGE_SIZE,
}
MAX_RATIO, LEAST_WORSE = 1.1, 1.4
NEEDLE = "The number of the locker is 58214. "
FILLER = "The grass is green and the sky is blue, and the sun shines over the fields and the hills. "
QUESTION = "As said at the beginning, the number of the locker is"
ANSWER = " 58214"


def main(argv: list[str]) -> str:
    if argv:
        raise SystemExit("scripts/prove streaming takes no options")
    streaming, without_sinks = engine(NUM_SINKS), engine(0)
    lines, bad = ["| law | measured | bound |", "|---|---|---|"], list[str]()
    rows = chain(within_window(streaming), stream(streaming, without_sinks), needle(streaming))
    for law, measured, bound, holds in rows:
        lines.append(f"| {law} | {measured} | {bound} |")
        print(lines[-1], file=sys.stderr)
        if not holds:
            bad.append(law)
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def engine(num_sinks: int) -> LLM:
    capacity = NUM_SINKS + WINDOW
    policy = {"name": "streaming", "num_sinks": num_sinks, "window": capacity - num_sinks}
    return LLM(MODEL, **OPTIONS, kv_policy=policy)


def within_window(llm: LLM):
    """Texts that the window holds are those of an engine without a policy, token for token."""
    prompts, _ = read_goldens(MODEL)
    prompts = [prompt for prompt in prompts if len(prompt) + 64 <= NUM_SINKS + WINDOW]
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    outputs = [texts(llm, prompts, params), texts(llm, prompts, replaced(params, kv_policy=False))]
    equal = sum(one == other for one, other in zip(*outputs, strict=True))
    yield "prompts whose 64 tokens equal those with all KV", equal, f"all {len(prompts)}", equal == len(prompts)


def stream(llm: LLM, without_sinks: LLM):
    tokens = manual(llm)
    started = time.perf_counter()
    logprobs, most_pages = score(llm, tokens)
    yield f"tokens of the stream, in {time.perf_counter() - started:.0f} s", len(tokens), NUM_TOKENS, True
    bound = -(-(NUM_SINKS + WINDOW) // PAGE_SIZE) + 1
    yield "most pages held at once", most_pages, bound, most_pages <= bound
    places = range(CONTEXT, len(tokens), EVERY)
    found, recomputed = logprobs[places], recompute(llm, tokens, places)
    ratio = math.exp(np.mean(recomputed) - np.mean(found))
    yield f"perplexity at {len(places)} positions", f"{perplexity(found):.2f}", "–", True
    yield "perplexity of recomputed windows there", f"{perplexity(recomputed):.2f}", "–", True
    yield "their ratio", f"{ratio:.3f}", f"at most {MAX_RATIO}", ratio <= MAX_RATIO
    first, second = (perplexity(part) for part in np.array_split(logprobs[CONTEXT:], 2))
    yield "perplexity of the stream's two halves", f"{first:.2f}, {second:.2f}", "–", True
    worse = perplexity(score(without_sinks, tokens)[0][places]) / perplexity(found)
    yield "perplexity without sinks, over that", f"{worse:.1f}", f"at least {LEAST_WORSE}", worse >= LEAST_WORSE


def needle(llm: LLM):
    """A number is found with all KV, and not where it lies outside the window."""
    tokenizer = llm.get_tokenizer()
    prompt = NEEDLE + FILLER * 40 + QUESTION
    length = len(tokenizer.encode(prompt))
    params = SamplingParams(temperature=0, max_tokens=8)
    answers = {
        name: llm.generate(prompt, replaced(params, kv_policy=keeps), use_tqdm=False)[0].outputs[0].text
        for name, keeps in (("all KV", False), ("the window", None))
    }
    for name, must_find in (("all KV", True), ("the window", False)):
        is_found = answers[name].startswith(ANSWER)
        law = f"number {length} tokens before: answer with {name}"
        yield law, f"{answers[name]!r}", "found" if must_find else "not found", is_found == must_find


def manual(llm: LLM) -> list[int]:
    pages = sorted((ROOT / "docs").glob("*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return llm.get_tokenizer().encode(text)[:NUM_TOKENS]


def score(llm: LLM, tokens: list[int]) -> tuple[np.ndarray, int]:
    """Log-probabilities of tokens (the first: 0), and the most pages held."""
    most, state = 0, llm.parts.engine.scheduler.state

    def observe(_):
        nonlocal most
        most = max(most, state.pool.num_referenced)

    llm.parts.engine.observer = observe
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    (output,) = llm.generate([tokens], params, use_tqdm=sys.stderr.isatty())
    llm.parts.engine.observer = None
    entries = zip(tokens, output.prompt_logprobs, strict=True)
    logprobs = np.array([0.0 if entry is None else entry[token].logprob for token, entry in entries])
    return logprobs, most


def recompute(llm: LLM, tokens: list[int], places: range) -> np.ndarray:
    """Log-probability of each place's token after the tokens of the window before it, as a text of its own."""
    size = NUM_SINKS + WINDOW
    pairs = [(tokens[place - size : place], [tokens[place]]) for place in places]
    return np.array([output.logprob for output in llm.score(pairs, use_tqdm=sys.stderr.isatty())])


def perplexity(logprobs: np.ndarray) -> float:
    return math.exp(-np.mean(logprobs))


def texts(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=sys.stderr.isatty())]


def replaced(params: SamplingParams, **changes) -> SamplingParams:
    return SamplingParams(**vars(params) | changes)
