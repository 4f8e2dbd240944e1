"""One round of jaxserve: the times of decode steps by case.

python -m scripts.benchmarks.compare.steps_jaxserve_side SPEC.json RESULT.json
"""

import json
import sys
from pathlib import Path

import numpy as np

from jaxserve import LLM, SamplingParams
from jaxserve.bench.machine import hardware, versions
from jaxserve.engine.loop.step_stats import StepRecord

UNTIMED = 3  # steps of a case before the timed ones
SPREAD = 24  # most steps between the end of the first prompt and that of the last


def main(spec_file: str, result_file: str) -> None:
    spec = json.loads(Path(spec_file).read_text())
    max_rows = max(case["rows"] for case in spec["cases"])
    llm = LLM(
        spec["gguf"],
        dtype=spec["dtype"],
        quantization="dense",
        max_model_len=spec["context"] + spec["num_steps"] + SPREAD,
        max_num_seqs=max_rows,
        max_num_batched_tokens=512,
        max_decode_rounds=1,  # one token per step
    )
    seconds = {}
    for case in spec["cases"]:
        seconds[case["name"]] = times(llm, spec, case)
        print(f"  jaxserve: {case['name']}: {1000 * np.median(seconds[case['name']]):.1f} ms", file=sys.stderr)
    about = {"versions": versions(), "hardware": hardware()}
    Path(result_file).write_text(json.dumps({"seconds": seconds, **about}))


def times(llm: LLM, spec: dict, case: dict) -> list[float]:
    """Seconds of steps in which all rows decode, from contexts of `spec["context"]` positions, or a few more, on."""
    records: list[StepRecord] = []
    llm.parts.engine.observer = records.append
    random = np.random.default_rng(0)
    prompts = random.integers(10, llm.parts.model.vocab_size, (case["rows"], spec["context"] - UNTIMED)).tolist()
    params = SamplingParams(max_tokens=spec["num_steps"] + SPREAD, ignore_eos=True, **case["sampling"])
    llm.generate(prompts, params, use_tqdm=False)
    llm.parts.engine.observer = None
    is_full = [r.kind == "decode" and r.num_rows == case["rows"] for r in records]
    device_s = np.array([r.moments.device_s for r in records])
    return device_s[is_full][UNTIMED : UNTIMED + spec["num_steps"]].tolist()


if __name__ == "__main__":
    main(*sys.argv[1:])
