"""Host: the flags of `jaxserve bench serve`, under vLLM's names where vLLM has them."""

import argparse
from pathlib import Path
from typing import Any

from jaxserve.bench.serving.options import DATASETS, METRICS, ArrivalOptions
from jaxserve.cli.args.arg_types import count, existing_file, out_file, whole_number
from jaxserve.cli.args.dataclass_flags import add_flags
from jaxserve.cli.bench_verbs import bench_serve_types as values
from jaxserve.core.errors import ConfigError


def add_parser(benchmarks: Any) -> None:
    """Adds the parser of `bench serve` to the subparsers of `bench`."""
    parser = benchmarks.add_parser(
        "serve",
        help="throughput and latencies of any OpenAI-compatible server under load",
        description="Measure a running server under load: jaxserve bench serve --base-url http://127.0.0.1:8000 "
        "--max-concurrency 1,2,4,8 --num-prompts 64 --report report.html",
    )
    server = parser.add_argument_group("server")
    server.add_argument("--base-url", help="address of the server (default: http://HOST:PORT)")
    server.add_argument("--host", help="host name or address (default: 127.0.0.1)")
    server.add_argument("--port", type=count, help="TCP port (default: 8000)")
    server.add_argument(
        "--endpoint",
        type=values.endpoint,
        metavar="{completions,chat}",
        help="the route to measure (default: completions)",
    )
    server.add_argument(
        "--backend",
        type=values.backend,
        metavar=f"{{{','.join(values.BACKENDS)}}}",
        help="the same under vLLM's names: vllm and openai for completions, openai-chat for chats",
    )
    server.add_argument("--model", help="name of the model on the server (default: the first one that it serves)")
    server.add_argument(
        "--tokenizer", help="folder or model to count tokens with (default: the server's /tokenize, where needed)"
    )
    server.add_argument("--api-key", help="API key to send (default: OPENAI_API_KEY or JAXSERVE_API_KEY)")
    server.add_argument(
        "--request-timeout", type=values.seconds, default=3600.0, help="time limit of a request in s (default: 3600)"
    )
    server.add_argument(
        "--ready-check-timeout-sec",
        type=values.seconds,
        default=0.0,
        help="seconds to wait for a server to start (default: 0)",
    )

    data = parser.add_argument_group("requests")
    data.add_argument("--dataset-name", choices=DATASETS, default="random", help="source of prompts (default: random)")
    data.add_argument("--dataset-path", type=existing_file, help="file of the datasets custom, sharegpt and trace")
    data.add_argument(
        "--num-prompts", type=count, help="requests per run (default: 1000, or the whole file if it has fewer)"
    )
    data.add_argument(
        "--num-warmups", type=whole_number, default=0, help="untimed requests before the first run (default: 0)"
    )
    data.add_argument("--prompt-token-ids", action="store_true", help="send token ids instead of text")
    data.add_argument("--seed", type=whole_number, default=0, help="seed of prompts and arrivals (default: 0)")
    data.add_argument(
        "--temperature", type=values.number, default=0.0, help="temperature of requests (default: 0, which is greedy)"
    )
    data.add_argument("--top-p", type=values.number, help="top_p of requests (default: the server's)")
    data.add_argument("--top-k", type=int, help="top_k of requests (default: the server's)")
    data.add_argument(
        "--ignore-eos", action="store_true", help="do not stop at end tokens: generate the full output length"
    )
    data.add_argument(
        "--extra-body", type=values.json_object, default={}, metavar="JSON", help="additional fields of every request"
    )
    for options in DATASETS.values():
        add_flags(parser, options)

    add_flags(parser, ArrivalOptions)
    load = parser.add_argument_group("load")
    load.add_argument(
        "--max-concurrency",
        type=values.concurrencies,
        default=(None,),
        metavar="N[,N…]",
        help="limit of requests in flight; a list gives one run per number (default: no limit)",
    )

    output = parser.add_argument_group("figures")
    output.add_argument(
        "--percentile-metrics",
        type=values.metrics,
        default=METRICS[:3],
        help="metrics with percentiles in the table (default: ttft,tpot,itl)",
    )
    output.add_argument(
        "--metric-percentiles",
        type=values.percentiles,
        default=(99.0,),
        help="percentiles of these metrics, such as 50,90,99 (default: 99)",
    )
    output.add_argument(
        "--goodput",
        type=values.limit,
        nargs="+",
        action="extend",
        default=[],
        metavar="METRIC:MS",
        help="latency limits that a good request keeps, such as ttft:200 tpot:50 e2el:3000",
    )
    output.add_argument("--save-result", action="store_true", help="write the figures of each run to a JSON file")
    output.add_argument("--save-detailed", action="store_true", help="include the figures of each request")
    output.add_argument("--result-dir", type=Path, help="folder of the JSON files (default: the current folder)")
    output.add_argument(
        "--result-filename",
        type=values.file_name,
        help="name of the JSON file (default: built from rate, concurrency, model and time)",
    )
    output.add_argument("--label", type=values.file_name, help="prefix of the file name (default: jaxserve)")
    output.add_argument(
        "--report", type=out_file, metavar="HTML", help="write a page with plots of all runs to this file"
    )
    output.add_argument("--quiet", action="store_true", help="print the tables only, no progress")


def run(args: argparse.Namespace) -> int:
    """Runs the benchmark; raises `ConfigError` where aiohttp is not installed."""
    try:
        from jaxserve.cli.bench_verbs.bench_serve_run import run
    except ImportError as error:
        if error.name != "aiohttp":
            raise
        raise ConfigError("jaxserve bench serve needs aiohttp: pip install 'jaxserve-engine[bench]'") from None
    return run(args)
