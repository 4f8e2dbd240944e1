"""Wiring: the flags of `jaxserve bench throughput` for adapters, and the adapters that they ask for."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxserve.cli.args.arg_types import count
from jaxserve.core.errors import RequestError

if TYPE_CHECKING:
    from jaxserve.bench.offline.measure import Workloads
    from jaxserve.engine.llm import LLM

FLAGS = ("num_adapters", "adapter_rank", "adapter_skew")
DEFAULT_RANK = 8
MAX_CPU_LORAS = 256  # the engine's own default


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-adapters", type=count, help="random adapters (LoRA) of q, k, v and o, of which each request has one"
    )
    parser.add_argument("--adapter-rank", type=count, help=f"their rank (default: {DEFAULT_RANK})")
    parser.add_argument(
        "--adapter-skew",
        type=_skew,
        help="how much more often some are drawn: the k-th by 1 / k^SKEW (default: 0, all equally often)",
    )


def engine_defaults(args: argparse.Namespace) -> dict[str, Any]:
    """Options of an engine that serves them, unless the user says otherwise: all of them fit in host memory."""
    if args.num_adapters is None:
        for name in FLAGS[1:]:
            if getattr(args, name) is not None:
                raise RequestError(f"--{name.replace('_', '-')} goes with --num-adapters", name)
        return {}
    rank = args.adapter_rank or DEFAULT_RANK
    return {"enable_lora": True, "max_lora_rank": rank, "max_cpu_loras": max(args.num_adapters, MAX_CPU_LORAS)}


def with_adapters(
    args: argparse.Namespace, llm: "LLM", folder: Path, workloads: "Workloads"
) -> "tuple[Workloads, dict[str, Any]]":
    """The workloads with the adapters that the flags ask for, which are loaded, and what the report says of them.

    folder: empty, gets their files; it must stay while the engine runs.
    """
    from jaxserve.bench.offline.random_adapters import AdaptedWorkloads, RandomAdapters
    from jaxserve.engine.build.adapter_reading import matrix_shapes

    adapters = RandomAdapters(args.num_adapters, args.adapter_rank or DEFAULT_RANK, args.adapter_skew or 0.0, args.seed)
    model = llm.parts.model
    requests = adapters.write(folder, matrix_shapes(model), model.num_layers)
    for request in requests:
        llm.load_adapter(request)
    description = {"num_adapters": adapters.number, "adapter_rank": adapters.rank, "adapter_skew": adapters.skew}
    return AdaptedWorkloads(workloads, adapters, requests), description


def _skew(text: str) -> float:
    value = float(text)
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"{text} must be from 0 to 100")
    return value
