"""Host: `jaxserve bench serve` at work: connects to the server, measures, prints a table per run and writes files."""

import argparse
import asyncio
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import aiohttp

from jaxserve.bench import machine
from jaxserve.bench.serving.benchmark import BenchmarkSpec, measure
from jaxserve.bench.serving.benchmark_progress import ProgressBars
from jaxserve.bench.serving.client.http_client import BenchClient
from jaxserve.bench.serving.client.server_session import ask, open_session, served_model, wait_ready
from jaxserve.bench.serving.client.server_target import ServerTarget, clean_url, key_header
from jaxserve.bench.serving.datasets.encoders import Encoder, LocalEncoder, ServerEncoder
from jaxserve.bench.serving.datasets.local_tokenizer import find_tokenizer
from jaxserve.bench.serving.datasets.open_dataset import open_dataset
from jaxserve.bench.serving.options import CHAT, COMPLETIONS, DATASETS, ArrivalOptions, DatasetOptions, needs_tokenizer
from jaxserve.bench.serving.report.run_report import RunReport
from jaxserve.cli.args.dataclass_flags import given
from jaxserve.core.errors import ConfigError
from jaxserve.text.tokenizer import Tokenizer

INTERRUPTED = 130  # exit code, as in shells
REPEATED = ("custom", "sharegpt")  # datasets whose prompts are the same in every run
PACKAGES = ("jaxserve-engine", "aiohttp", "uvloop")


def run(args: argparse.Namespace) -> int:
    args.endpoint = _endpoint(args)
    _check(args)
    if args.save_result:
        _make_folder(args.result_dir or Path())
    options, arrivals = _dataset_options(args), ArrivalOptions(**given(args, ArrivalOptions))
    dataset = open_dataset(args.dataset_name, options, args.dataset_path)
    spec = BenchmarkSpec(
        dataset, arrivals, args.max_concurrency, args.num_prompts, args.num_warmups, args.seed, args.prompt_token_ids
    )
    if args.dataset_name in REPEATED and len(args.max_concurrency) > 1:
        print("all runs send the same prompts: a prefix cache makes the later runs faster", file=sys.stderr)
    tokenizer = None if args.tokenizer is None else find_tokenizer(args.tokenizer)
    counts = needs_tokenizer(options) or args.prompt_token_ids
    is_interrupted = False
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        target = runner.run(_target(args))
        setup = _setup(args, target, options, arrivals)
        report = RunReport(setup, args.percentile_metrics, args.metric_percentiles, dict(args.goodput))
        try:
            runner.run(_measure(spec, target, tokenizer, counts, ProgressBars(_has_bars(args)), report))
        except KeyboardInterrupt:  # between two runs: finished runs are saved
            is_interrupted = True
        finally:  # also where the server disappears before the last run
            _save(report, args)
    if is_interrupted or report.is_interrupted:
        return INTERRUPTED
    return 0 if report.has_completed else 1


def _save(report: RunReport, args: argparse.Namespace) -> None:
    try:
        if args.save_result:
            for path in report.save(args.result_dir or Path(), args.result_filename, is_detailed=args.save_detailed):
                print(f"wrote {path}", file=sys.stderr)
    finally:  # the page may be on another disk
        if args.report is not None:
            report.save_page(args.report)


async def _target(args: argparse.Namespace) -> ServerTarget:
    """The server to measure, with the name of its model; waits for it to start where the user asks for that."""
    base_url, headers = _base_url(args), key_header(args.api_key)
    async with open_session(base_url, headers, args.request_timeout) as session:
        if args.ready_check_timeout_sec:
            await wait_ready(session, base_url, args.ready_check_timeout_sec)
        model = args.model or await served_model(session, base_url)
    sampling = {name: getattr(args, name) for name in ("temperature", "top_p", "top_k")}
    extra: dict[str, Any] = {name: value for name, value in sampling.items() if value is not None}
    extra |= ({"ignore_eos": True} if args.ignore_eos else {}) | args.extra_body
    return ServerTarget(base_url, args.endpoint, model, extra, args.request_timeout, headers)


def _base_url(args: argparse.Namespace) -> str:
    if args.base_url is not None:
        return clean_url(args.base_url)
    host = args.host or "127.0.0.1"
    return clean_url(f"http://{f'[{host}]' if ':' in host else host}:{args.port or 8000}")


async def _measure(
    spec: BenchmarkSpec,
    target: ServerTarget,
    tokenizer: Tokenizer | None,
    counts: bool,
    bars: ProgressBars,
    report: RunReport,
) -> None:
    async with open_session(target.base_url, target.headers, target.timeout_s) as session:
        client = BenchClient(session, target, time.perf_counter, _counter(tokenizer))
        encoder = _encoder(session, target, tokenizer, counts)
        async for run in measure(spec, client, encoder, bars):
            print(report.add(run), flush=True)


def _encoder(
    session: aiohttp.ClientSession, target: ServerTarget, tokenizer: Tokenizer | None, counts: bool
) -> Encoder | None:
    """The local tokenizer where one is named, the server's where tokens must be counted, else None."""
    adds_special = target.path != CHAT
    if tokenizer is not None:
        return LocalEncoder(tokenizer, adds_special=adds_special)

    async def post(path: str, body: dict[str, Any]) -> Any:
        return await ask(session, target.base_url + path, body)

    return ServerEncoder(post, target.model, adds_special=adds_special) if counts else None


def _counter(tokenizer: Tokenizer | None) -> Callable[[str], int] | None:
    """Counts the tokens of answers of servers that report no usage."""
    return None if tokenizer is None else lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _dataset_options(args: argparse.Namespace) -> DatasetOptions:
    """Raises `ConfigError` for a flag of another dataset."""
    for name, options in DATASETS.items():
        if name != args.dataset_name and (others := given(args, options)):
            flag = next(iter(others))
            raise ConfigError(f"--{flag.replace('_', '-')} needs --dataset-name {name}", param=flag)
    options = DATASETS[args.dataset_name]
    return options(**given(args, options))


def _endpoint(args: argparse.Namespace) -> str:
    """The path of the route, which --backend implies."""
    if args.backend and args.endpoint not in (None, args.backend):
        raise ConfigError(f"--backend implies --endpoint {args.backend}: leave one of them out", param="backend")
    return args.endpoint or args.backend or COMPLETIONS


def _make_folder(folder: Path) -> None:
    """Makes the result folder before the first run; raises `ConfigError` where it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"--result-dir {folder}: {error.strerror}", param="result_dir") from None


def _check(args: argparse.Namespace) -> None:
    for flag in ("save_detailed", "result_dir", "result_filename"):
        if getattr(args, flag) and not args.save_result:
            raise ConfigError(f"--{flag.replace('_', '-')} needs --save-result", param=flag)
    if args.base_url is not None and (args.host is not None or args.port is not None):
        raise ConfigError("--base-url includes host and port: leave out --host and --port", param="base_url")
    if args.prompt_token_ids and args.endpoint == CHAT:
        raise ConfigError("--prompt-token-ids needs --endpoint completions: chats are text", param="prompt_token_ids")
    if hasattr(args, "trace_speed") and args.dataset_name != "trace":
        raise ConfigError("--trace-speed needs --dataset-name trace", param="trace_speed")


def _setup(
    args: argparse.Namespace, target: ServerTarget, options: DatasetOptions, arrivals: ArrivalOptions
) -> dict[str, Any]:
    """The settings for the JSON record, without the API key. Infinity is written as "inf", as in vLLM."""
    times = "trace" if args.dataset_name == "trace" and not arrivals.has_rate else "inf"
    rate = arrivals.request_rate if arrivals.request_rate not in (None, math.inf) else times
    return {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "label": args.label or "jaxserve",
        "base_url": target.base_url,
        "endpoint": target.path,
        "model_id": target.model,
        "tokenizer_id": args.tokenizer,
        "num_prompts": args.num_prompts,
        "num_warmups": args.num_warmups,
        "seed": args.seed,
        "dataset_name": args.dataset_name,
        "dataset_path": None if args.dataset_path is None else str(args.dataset_path),
        **asdict(options),
        **asdict(arrivals),
        "request_rate": rate,
        "burstiness": "inf" if math.isinf(arrivals.burstiness) else arrivals.burstiness,
        "prompt_token_ids": args.prompt_token_ids,
        "request_fields": dict(target.extra),
        "goodput_ms": dict(args.goodput),
        "client": machine.host() | machine.versions(PACKAGES),
    }


def _has_bars(args: argparse.Namespace) -> bool:
    return not args.quiet and sys.stderr.isatty()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed: it halves the client's time per chunk."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
