"""One round of transformers: the times of decode steps by case; runs in the oracle's environment.

    python steps_transformers_side.py SPEC.json RESULT.json

A case is one static batch of prompts of equal length, run by transformers' `generate`; a streamer records the time at
which the tokens of each step arrive.
"""

import json
import sys
import time
from pathlib import Path

import torch
import transformers

UNTIMED = 3  # steps of a case before the timed ones


class Clock(transformers.generation.streamers.BaseStreamer):
    def __init__(self) -> None:
        self.times_s: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.times_s.append(time.monotonic())

    def end(self) -> None:
        pass


def main(spec_file: str, result_file: str) -> None:
    spec = json.loads(Path(spec_file).read_text())
    torch.set_num_threads(spec["num_threads"])
    path = Path(spec["gguf"])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=getattr(torch, spec["dtype"]),
        quantization_config=transformers.GgufConfig(dequantize=True),  # dense weights, as in jaxserve
    ).eval()
    model.generation_config.eos_token_id = None
    seconds = {}
    for case in spec["cases"]:
        seconds[case["name"]] = times(model, spec, case)
        median_s = sorted(seconds[case["name"]])[spec["num_steps"] // 2]
        print(f"  transformers: {case['name']}: {1000 * median_s:.1f} ms", file=sys.stderr, flush=True)
    about = {"python": sys.version.split()[0], "torch": torch.__version__, "transformers": transformers.__version__}
    result = {"seconds": seconds, "versions": about, "attention": model.config._attn_implementation}
    Path(result_file).write_text(json.dumps(result))


@torch.inference_mode()
def times(model: transformers.PreTrainedModel, spec: dict, case: dict) -> list[float]:
    """Seconds of each step, from contexts of `spec["context"]` positions on."""
    torch.manual_seed(0)
    ids = torch.randint(10, model.config.vocab_size, (case["rows"], spec["context"] - UNTIMED))
    sampling = dict(case["sampling"])
    if sampling.pop("temperature"):
        sampling |= {"do_sample": True, "temperature": 1.0, "top_k": 0}
    else:
        sampling = {"do_sample": False}
    clock = Clock()
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=spec["num_steps"] + UNTIMED + 1,
        pad_token_id=0,
        streamer=clock,
        **sampling,
    )
    steps = [b - a for a, b in zip(clock.times_s[1:], clock.times_s[2:], strict=False)]
    return steps[UNTIMED:]


if __name__ == "__main__":
    main(*sys.argv[1:])
