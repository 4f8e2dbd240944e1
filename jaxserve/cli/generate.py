"""Wiring: `jaxserve generate MODEL --prompt TEXT`: completes prompts, prints the text and the time of each phase."""

import argparse
import dataclasses
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxserve.cli.args.arg_types import MODEL_HELP
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.cli.args.lora_flag import add_lora_flag, lora_request, with_lora
from jaxserve.cli.args.sampling_flags import add_sampling_flags, sampling_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.errors import RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.outputs import Logprob, RequestOutput

if TYPE_CHECKING:
    from jaxserve.bench.offline.compile_clock import CompileClock


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    prompts = _prompts(args)
    params = SamplingParams(**sampling_options(args))
    if not args.json and (params.logprobs is not None or params.prompt_logprobs is not None):
        raise RequestError("--logprobs and --prompt-logprobs need --json", "logprobs")
    config = EngineConfig.create(args.model, **with_lora(engine_options(args), args.lora))
    adapter = lora_request(args.lora)

    from jaxserve.bench.offline.compile_clock import CompileClock
    from jaxserve.engine.llm import LLM

    llm = LLM.from_config(config, show_progress=not args.quiet)
    loaded_s = time.monotonic()
    with CompileClock() as clock:
        outputs = llm.generate(prompts, params, lora_request=adapter, use_tqdm=not args.quiet)
    finished_s = time.monotonic()
    for output in outputs:
        _print(output, as_json=args.json, show_prompt=len(prompts) > 1)
    if not args.quiet:
        print(summary(outputs, clock, process_start_s(), loaded_s, finished_s), file=sys.stderr)
    return 1 if any(c.finish_reason == "error" for output in outputs for c in output.outputs) else 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve generate",
        description="Complete prompts: jaxserve generate smollm2-135m-instruct --prompt 'The capital of France is'",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("--prompt", action="append", default=[], help="text to complete; repeatable")
    parser.add_argument("--prompts-file", help="file with one prompt per line; - reads standard input")
    add_lora_flag(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per prompt instead of text")
    parser.add_argument("--quiet", action="store_true", help="print no progress and no summary")
    add_sampling_flags(parser)
    add_engine_flags(parser, skip=["chat_template"], seed_help="seed of requests without --seed")
    return parser


def _prompts(args: argparse.Namespace) -> list[str]:
    prompts = list(args.prompt)
    if args.prompts_file:
        raw = sys.stdin.buffer.read() if args.prompts_file == "-" else Path(args.prompts_file).read_bytes()
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"--prompts-file {args.prompts_file} is not text in UTF-8: {error}") from None
        prompts += [line for line in text.split("\n") if line]
    if not prompts:
        raise RequestError("there is no prompt: add --prompt TEXT or --prompts-file FILE")
    return prompts


def _print(output: RequestOutput, *, as_json: bool, show_prompt: bool) -> None:
    if as_json:
        print(json.dumps(_as_json(output)))
        return
    for completion in output.outputs:
        print(f"{output.prompt}{completion.text}" if show_prompt else completion.text)


def _as_json(output: RequestOutput) -> dict[str, Any]:
    completions = [
        {
            "index": c.index,
            "text": c.text,
            "token_ids": c.token_ids,
            "finish_reason": c.finish_reason,
            "stop_reason": c.stop_reason,
            "logprobs": None if c.logprobs is None else [_logprobs(entry) for entry in c.logprobs],
        }
        for c in output.outputs
    ]
    prompt_logprobs = None
    if output.prompt_logprobs is not None:
        prompt_logprobs = [None if entry is None else _logprobs(entry) for entry in output.prompt_logprobs]
    return {
        "request_id": output.request_id,
        "prompt": output.prompt,
        "prompt_token_ids": output.prompt_token_ids,
        "prompt_logprobs": prompt_logprobs,
        "outputs": completions,
    }


def _logprobs(entry: dict[int, Logprob]) -> dict[int, dict[str, Any]]:
    return {token: dataclasses.asdict(logprob) for token, logprob in entry.items()}


def summary(
    outputs: list[RequestOutput], clock: "CompileClock", started_s: float, loaded_s: float, finished_s: float
) -> str:
    """Loading, compiling and generating apart.

    Times are on the monotonic clock: the start of the process, the end of loading and the end of generation.
    """
    times = [output.metrics.first_token_s for output in outputs if output.metrics is not None]
    first_s = min((time_s for time_s in times if time_s is not None), default=math.nan)
    num_tokens = sum(len(completion.token_ids) for output in outputs for completion in output.outputs)
    generate_s = max(finished_s - loaded_s - clock.wall_s, 1e-9)
    return (
        f"model loaded in {loaded_s - started_s:.1f} s\n"
        f"{clock.num_compiled} program{'' if clock.num_compiled == 1 else 's'} compiled in {clock.wall_s:.1f} s "
        f"({clock.num_cached} of them read from the compilation cache)\n"
        f"{num_tokens} tokens generated in {generate_s:.1f} s: {num_tokens / generate_s:.1f} tokens/s, compilation not "
        "counted\n"
        f"first token {first_s - started_s:.1f} s after the start of the process, loading and compilation included"
    )


def process_start_s() -> float:
    """When this process began, on the monotonic clock; without /proc, estimated from the processor time it has used."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return time.monotonic() - time.process_time()
    return time.monotonic() - (uptime_s - started_ticks / os.sysconf("SC_CLK_TCK"))
