"""Wiring: `jaxserve inspect MODEL`: a model's sizes, memory, tokenizer and fitting devices, without its weights."""

import argparse
import json
import os
from dataclasses import asdict, fields

from jaxserve.cli.args.arg_types import MODEL_OR_SHAPE_HELP
from jaxserve.cli.args.dataclass_flags import add_flags, engine_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import EngineConfig

FLAGS = """tokenizer revision hf_token cache_dir dtype quantization tensor_parallel_size max_model_len page_size
    kv_layout memory_utilization"""


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    options = engine_options(args)
    config = EngineConfig.create(args.model, **options)
    # Nothing is computed here: a GPU's memory is queried and stays free for other processes.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

    from jaxserve.analysis.inspect_model import inspect_model
    from jaxserve.analysis.sharded_sizes import local_devices
    from jaxserve.cli.tables.inspect_tables import show

    local = local_devices() if args.device else None
    found = inspect_model(config, local, options.get("tensor_parallel_size"))
    if args.json:
        print(json.dumps(asdict(found), indent=1))
    else:
        show(found)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve inspect",
        description="Describe a model without loading it: jaxserve inspect llama-3-8b. Only headers are read (sources "
        "other than local files and safetensors of the Hugging Face hub are fetched first).",
    )
    parser.add_argument("model", help=MODEL_OR_SHAPE_HELP)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument(
        "--device",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="include this machine's devices (default: yes)",
    )
    add_flags(parser, EngineConfig, skip=[f.name for f in fields(EngineConfig) if f.name not in FLAGS.split()])
    return parser
