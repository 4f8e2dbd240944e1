"""Records which drafts of two proposers SmolLM2 accepts in real texts, and how long its steps take with and without.

    python scripts/goldens/draft_traces.py EAGLE_FOLDER
EAGLE_FOLDER: an EAGLE-3 draft of the model, as `scripts/prove proposers` trains one (.cache/proofs/eagle3). Writes
tests/goldens/draft_traces.json: of each text, greedy, how many drafts of each proposer would be accepted after each
token, if each pass had NUM_DRAFTS; and seconds of a step of 1, 8 and 32 rows without drafts and with those of each, in
passes of NUM_DRAFTS and, where the engine has such, of half as many. Nothing else may run on the machine meanwhile.
"""

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
OUT = ROOT / "tests" / "goldens" / "draft_traces.json"
MODEL = "smollm2-135m-instruct"
NUM_DRAFTS, NUM_TOKENS = 5, 128
NUM_ANSWERS, NUM_COPIES, COPY_LEN = 16, 8, 60
BATCHES = (1, 8, 32)
OPTIONS = {"max_model_len": 1024, "max_num_seqs": 32, "max_num_batched_tokens": 512}


def main() -> None:
    from jaxserve import LLM

    plain, whole = LLM(MODEL, **OPTIONS), _drafting(NUM_DRAFTS)
    prompts = _prompts(plain)
    accepted = {name: [_accepted(llm, prompt) for prompt in prompts] for name, llm in whole.items()}
    seconds = {n: {"none": _step_s(plain, prompts[:n])} for n in BATCHES}
    for num_drafts, engines in ((NUM_DRAFTS, whole), (NUM_DRAFTS // 2, _drafting(NUM_DRAFTS // 2))):
        for n in BATCHES:
            if num_drafts in _widths(whole["ngram"], n):
                for name, llm in engines.items():
                    seconds[n].setdefault(name, {})[num_drafts] = _step_s(llm, prompts[:n])
    OUT.write_text(json.dumps({"accepted": accepted, "seconds": seconds}))
    print(OUT, seconds)


def _drafting(num_drafts: int) -> dict:
    from jaxserve import LLM
    from tests.support.drafting import always

    configs = {"ngram": {"method": "ngram"}, "eagle3": {"method": "eagle3", "model": sys.argv[1]}}
    return {
        name: always(LLM(MODEL, **OPTIONS, speculative_config=config | {"num_speculative_tokens": num_drafts}))
        for name, config in configs.items()
    }


def _widths(llm, num_rows: int) -> list[int]:
    """Drafts of a row in the engine's passes of so many rows."""
    fitting = [bucket for bucket in llm.parts.spec.buckets.verify if bucket.num_rows >= num_rows]
    return [bucket.max_drafts for bucket in fitting if bucket.num_rows == min(b.num_rows for b in fitting)]


def _prompts(llm) -> list[list[int]]:
    """Questions, and texts to be copied, in turns: then questions again for the widest batch."""
    from scripts.proofs.parity import read_goldens

    goldens, encode = read_goldens(MODEL)[0], llm.get_tokenizer().encode
    flat = [token for prompt in goldens for token in prompt]
    begin, again = encode("Text:\n"), encode("\n\nThe same text again:\n")
    passages = [flat[i * COPY_LEN :][:COPY_LEN] for i in range(NUM_COPIES)]
    copies = [[*begin, *text, *again, *text, *again] for text in passages]
    mixed = [prompt for two in zip(goldens[::2], copies, goldens[1::2], strict=False) for prompt in two]
    return (mixed + goldens[2 * NUM_COPIES :])[: max(BATCHES)]


def _accepted(llm, prompt: list[int]) -> list[int]:
    """After each token of the text but the last: of a pass that accepted n drafts there, n, n - 1, …, 0."""
    from jaxserve import SamplingParams
    from tests.support.drafting import watched

    found = list[int]()

    def see(outcome) -> None:
        if outcome.drafts is not None:
            for count in outcome.drafts.num_accepted[0, : outcome.num_rounds].tolist():
                found.extend(range(count, -1, -1))

    with watched(llm, see):
        llm.generate([prompt], SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True), use_tqdm=False)
    return found[: NUM_TOKENS - 1]


def _step_s(llm, prompts: list[list[int]]) -> float:
    """The median of a second run; the first compiles."""
    from jaxserve import SamplingParams
    from jaxserve.engine.loop.step_stats import StepLog

    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    for log in (StepLog(), StepLog()):
        llm.parts.engine.observer = log
        llm.generate(prompts, params, use_tqdm=False)
    steps = [record for record in log.records if record.kind == "decode"]
    return statistics.median(record.moments.device_s / record.num_rounds for record in steps)


if __name__ == "__main__":
    main()
