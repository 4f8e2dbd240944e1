"""The demo's first token comes within 20 s of the process start with a cold compilation cache, 5 s with a warm one.

The demo's command runs three times with an empty compilation cache, three times with a filled one, and three times
with the output of `jaxserve compile`; the weights are on disk. The command itself reports the time from the start of
its process to the first token. The warm-up compiles the steps of all default buckets, with an empty cache.
"""

import re
import subprocess
import sys
import tempfile

PROMPTS = (
    "The capital of France is",
    "Water boils at",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):",
)
MODEL = "smollm2-135m-instruct"
LIMITS_S = {"cold cache": 20.0, "warm cache": 5.0, "compiled": 5.0, "warm-up of all buckets": 60.0}
RUNS = 3
WARM_UP = """
import sys, time
from jaxserve import LLM
llm = LLM(sys.argv[1], compilation_cache_dir=sys.argv[2])
started_s = time.monotonic()
llm.warm_up(use_tqdm=False)
print(time.monotonic() - started_s)
"""


def main(argv: list[str]) -> str:
    if argv:
        raise SystemExit("scripts/prove demo takes no options")
    times: dict[str, list[float]] = {name: [] for name in LIMITS_S}
    with tempfile.TemporaryDirectory() as folder:
        run_demo("--compilation-cache-dir", f"{folder}/first")  # downloads the model if it is not cached
        for i in range(RUNS):
            times["cold cache"].append(run_demo("--compilation-cache-dir", f"{folder}/{i}"))
        for _ in range(RUNS):
            times["warm cache"].append(run_demo("--compilation-cache-dir", f"{folder}/0"))
        run("-m", "jaxserve.cli.main", "compile", MODEL, "--out", f"{folder}/compiled")
        for _ in range(RUNS):
            times["compiled"].append(run_demo("--compiled", f"{folder}/compiled"))
        times["warm-up of all buckets"].append(float(run("-c", WARM_UP, MODEL, f"{folder}/last").stdout))
    lines = ["| | s | limit, s |", "|---|---|---|"]
    for name, seconds in times.items():
        lines.append(f"| {name} | {', '.join(f'{s:.1f}' for s in seconds)} | {LIMITS_S[name]:.0f} |")
    if any(max(seconds) > LIMITS_S[name] for name, seconds in times.items()):
        raise SystemExit("\n".join([*lines, "", "failed: a run exceeded its limit"]))
    return "\n".join([*lines, "", "All runs are within their limits."])


def run_demo(*options: str) -> float:
    """Seconds to the first token."""
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    done = run(
        "-m", "jaxserve.cli.main", "generate", MODEL, *prompts, "--max-tokens", "48", "--temperature", "0", *options
    )
    found = re.search(r"first token ([\d.]+) s", done.stderr)
    if found is None:
        raise RuntimeError(f"the demo did not report the time of its first token:\n{done.stderr}")
    return float(found[1])


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
