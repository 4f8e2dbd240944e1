"""Wiring: `jaxserve plan MODEL`: compiles an engine for a target without its devices; reports memory and times."""

import argparse
from contextlib import nullcontext
from dataclasses import asdict, fields, replace

from jaxserve.cli.args.arg_types import MODEL_OR_SHAPE_HELP, count, out_file
from jaxserve.cli.args.dataclass_flags import add_flags, engine_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.hardware.compilers import compile_without_devices
from jaxserve.core.options.engine_config import ALIASES, EngineConfig

FLAGS = """revision hf_token cache_dir dtype quantization tensor_parallel_size max_model_len max_num_seqs
    max_num_batched_tokens max_chunk_tokens page_size kv_layout num_pages kv_cache_memory_bytes
    memory_utilization max_logprobs attention_backend batch_invariant speculative_config kv_policy enable_lora
    max_loras max_lora_rank max_cpu_loras buckets compilation_cache_dir"""


def run(argv: list[str]) -> int:
    """Exit code 1 where a program has problems (`ProgramInfo`), or the engine does not fit."""
    args = _parser().parse_args(argv)
    options = engine_options(args)
    config = EngineConfig.create(args.model, **options)
    gpu = None if args.device == "local" else args.device
    is_absent = args.topology is not None or gpu is not None
    if is_absent:
        compile_without_devices()

    from jaxserve.analysis.capacity_plan import plan_model, spec_for
    from jaxserve.analysis.inspect_model import open_description
    from jaxserve.analysis.plan_target import choose_target
    from jaxserve.cli.tables.plan_tables import show
    from jaxserve.cli.tables.report_output import write_record
    from jaxserve.core.hardware.aot_targets import no_persistent_cache
    from jaxserve.core.progress_bars import CompileBar
    from jaxserve.engine.build.model_source import open_draft
    from jaxserve.engine.build.packing.choose_packing import with_packing
    from jaxserve.engine.build.startup.xla_cache import use_compilation_cache

    if not is_absent:
        use_compilation_cache(config)
    with open_description(config) as source, open_draft(config, open_description) as other:
        target = choose_target(source.model, args.topology, gpu, options.get("tensor_parallel_size"))
        device = target.mesh.devices.flat[0]
        planned = with_packing(replace(config, tensor_parallel_size=target.mesh.size), source, device)
        draft = None if other is None else other.model
    spec = spec_for(config, planned.model, target, draft, planned.packing)
    total = len(spec.programs.all(spec.buckets.all()))
    bar = CompileBar(not args.quiet, total)
    with bar, no_persistent_cache() if is_absent else nullcontext():
        plan = plan_model(config, spec, target, args.context, bar.update)
    show(plan)
    write_record(args.json, asdict(plan))
    return 1 if plan.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve plan",
        description="Compile an engine for a target, whose devices may be absent, and report its memory and the lower "
        "bounds of its step times: jaxserve plan llama-3-8b --topology v6e:2x2. No weights are read. A program takes "
        "up to a minute to compile: --buckets selects a few. Exit code 1 where a program copies the pool, one that "
        "decodes copies weights, or the engine does not fit.",
    )
    parser.add_argument("model", help=MODEL_OR_SHAPE_HELP)
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--topology", metavar="NAME", help="TPUs, as a slice type: v5e:2x2, v5p:2x2x1, v6e:2x4, tpu7x:2x2x1"
    )
    target.add_argument(
        "--device",
        metavar="NAME",
        default="local",
        help="GPUs: a100, b200, h100 or h200; local: this machine's devices (default: local)",
    )
    parser.add_argument(
        "--context",
        type=count,
        help="tokens of each sequence in a step, for the lower bounds (default: 2048, or the longest context)",
    )
    parser.add_argument("--json", type=out_file, metavar="OUT", help="write all figures to this file")
    parser.add_argument("--quiet", action="store_true", help="print the tables only, no progress")
    skipped = [field.name for field in fields(EngineConfig) if field.name not in FLAGS.split()]
    add_flags(parser, EngineConfig, skip=skipped, aliases=ALIASES)
    return parser
