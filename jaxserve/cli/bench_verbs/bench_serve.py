"""Host: `jaxserve bench serve`: load on any OpenAI-compatible server. Flags that vLLM has too have its names."""

import argparse
from pathlib import Path
from typing import Any

from jaxserve.bench.serving.options import DATASETS, METRICS, ArrivalOptions
from jaxserve.cli.args.arg_types import count, existing_file, out_file, whole_number
from jaxserve.cli.args.dataclass_flags import add_flags
from jaxserve.cli.bench_verbs import bench_serve_types as values
from jaxserve.core.errors import ConfigError


def add_parser(kinds: Any) -> None:
    parser = kinds.add_parser(
        "serve",
        help="time to the first token, between tokens and to the end, under load, of any OpenAI-compatible server",
        description="Load on a server that runs: jaxserve bench serve --base-url http://127.0.0.1:8000 "
        "--max-concurrency 1,2,4,8 --num-prompts 64 --report report.html",
    )
    server = parser.add_argument_group("server")
    server.add_argument("--base-url", help="its address (default: http://HOST:PORT)")
    server.add_argument("--host", help="default: 127.0.0.1")
    server.add_argument("--port", type=count, help="default: 8000")
    server.add_argument(
        "--endpoint",
        type=values.endpoint,
        metavar="{completions,chat}",
        help="what is measured (default: completions)",
    )
    server.add_argument(
        "--backend",
        type=values.backend,
        metavar=f"{{{','.join(values.BACKENDS)}}}",
        help="the same, as vLLM names it: vllm and openai for completions, openai-chat for chats",
    )
    server.add_argument("--model", help="name the server knows it by (default: the first that it names)")
    server.add_argument(
        "--tokenizer", help="folder or model to count tokens with (default: the server's /tokenize, where needed)"
    )
    server.add_argument("--api-key", help="key to send (default: OPENAI_API_KEY or JAXSERVE_API_KEY)")
    server.add_argument(
        "--request-timeout", type=values.seconds, default=3600.0, help="seconds that a request may take (default: 3600)"
    )
    server.add_argument(
        "--ready-check-timeout-sec",
        type=values.seconds,
        default=0.0,
        help="seconds to wait for a server to start (default: 0)",
    )

    data = parser.add_argument_group("requests")
    data.add_argument("--dataset-name", choices=DATASETS, default="random", help="default: random")
    data.add_argument("--dataset-path", type=existing_file, help="file of the datasets custom, sharegpt and trace")
    data.add_argument(
        "--num-prompts", type=count, help="requests of a run (default: 1000, or all that a file has if less)"
    )
    data.add_argument(
        "--num-warmups", type=whole_number, default=0, help="requests before the clock starts (default: 0)"
    )
    data.add_argument("--prompt-token-ids", action="store_true", help="send token ids instead of text")
    data.add_argument("--seed", type=whole_number, default=0, help="of prompts and arrivals (default: 0)")
    data.add_argument("--temperature", type=values.number, default=0.0, help="default: 0, greedy")
    data.add_argument("--top-p", type=values.number, help="default: the server's")
    data.add_argument("--top-k", type=int, help="default: the server's")
    data.add_argument("--ignore-eos", action="store_true", help="go on to the output length, whatever token comes")
    data.add_argument(
        "--extra-body", type=values.json_object, default={}, metavar="JSON", help="further fields of every request"
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
        help="requests under way at once, at most; of a list, one run after the other (default: no limit)",
    )

    output = parser.add_argument_group("figures")
    output.add_argument(
        "--percentile-metrics", type=values.metrics, default=METRICS[:3], help="in the table (default: ttft,tpot,itl)"
    )
    output.add_argument(
        "--metric-percentiles", type=values.percentiles, default=(99.0,), help="such as 50,90,99 (default: 99)"
    )
    output.add_argument(
        "--goodput",
        type=values.limit,
        nargs="+",
        action="extend",
        default=[],
        metavar="METRIC:MS",
        help="as in ttft:200 tpot:50 e2el:3000",
    )
    output.add_argument("--save-result", action="store_true", help="write the figures of each run as JSON")
    output.add_argument("--save-detailed", action="store_true", help="and those of each request")
    output.add_argument("--result-dir", type=Path, help="where to (default: here)")
    output.add_argument(
        "--result-filename", type=values.file_name, help="default: made of rate, concurrency, model and time"
    )
    output.add_argument("--label", type=values.file_name, help="begins the name of the file (default: jaxserve)")
    output.add_argument(
        "--report", type=out_file, metavar="HTML", help="write a page with plots of all runs to this file"
    )
    output.add_argument("--quiet", action="store_true", help="no progress, only the tables")


def run(args: argparse.Namespace) -> int:
    try:
        from jaxserve.cli.bench_verbs.bench_serve_run import run
    except ImportError as error:
        if error.name != "aiohttp":
            raise
        raise ConfigError("jaxserve bench serve needs aiohttp: pip install 'jaxserve-engine[bench]'") from None
    return run(args)
