"""One round of transformers: the workload in static batches of several sizes; runs in the oracle's environment.

    python transformers_side.py SPEC.json RESULT.json

Batches are formed in order of arrival and padded on the left. Each runs until its longest output is done; tokens beyond
the output length of a request do not count. Before a size is timed, one batch of the warm-up workload runs.
"""

import json
import re
import sys
import time
from pathlib import Path

import torch
import transformers

Workload = dict[str, list]


def main(spec_file: str, result_file: str) -> None:
    spec = json.loads(Path(spec_file).read_text())
    torch.set_num_threads(spec["num_threads"])
    path = Path(spec["gguf"])
    started_s = time.monotonic()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=getattr(torch, spec["dtype"]),
        # Dense weights, as in jaxserve; products with quantized blocks are far slower.
        quantization_config=transformers.GgufConfig(dequantize=True),
    ).eval()
    model.generation_config.eos_token_id = None  # like ignore_eos: only its length ends an output
    say(f"loaded in {time.monotonic() - started_s:.1f} s")
    sizes = {}
    for size in spec["batch_sizes"]:
        run(model, {key: spec["warm_up"][key][:size] for key in ("prompts", "output_lens")}, size)
        elapsed_s, tokens, num_computed = run(model, spec["timed"], size)
        sizes[size] = {"elapsed_s": elapsed_s, "num_computed": num_computed, "tokens": tokens}
        say(f"batches of {size}: {elapsed_s:.1f} s, {sum(spec['timed']['output_lens']) / elapsed_s:.1f} tokens/s")
    about = {"python": sys.version.split()[0], "torch": torch.__version__, "transformers": transformers.__version__}
    result = {"sizes": sizes, "versions": about, "attention": model.config._attn_implementation}
    Path(result_file).write_text(json.dumps(result | {"rss_bytes": peak_rss_bytes()}))


def run(model: transformers.PreTrainedModel, workload: Workload, size: int) -> tuple[float, list[list[int]], int]:
    """Seconds, the requested tokens of each request, and the total number of generated tokens."""
    started_s, tokens, num_computed = time.monotonic(), [], 0
    for start in range(0, len(workload["prompts"]), size):
        prompts, lens = (workload[key][start : start + size] for key in ("prompts", "output_lens"))
        outputs = generate(model, prompts, max(lens))
        tokens += [row[:n] for row, n in zip(outputs, lens, strict=True)]
        num_computed += len(prompts) * max(lens)
    return time.monotonic() - started_s, tokens, num_computed


@torch.inference_mode()
def generate(model: transformers.PreTrainedModel, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = model.generate(ids, attention_mask=mask, max_new_tokens=num_tokens, do_sample=False, pad_token_id=0)
    if out.shape[1] != width + num_tokens:
        raise RuntimeError(f"{out.shape[1] - width} tokens generated instead of {num_tokens}")
    return out[:, width:].tolist()


def peak_rss_bytes() -> int:
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def say(line: str) -> None:
    print(f"  transformers: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
