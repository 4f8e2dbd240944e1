"""Wiring: `jaxserve compile MODEL --out DIR`: compiles every program of an engine for later processes."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from jaxserve.cli.args.arg_types import MODEL_OR_SHAPE_HELP
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import EngineConfig


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    config = EngineConfig.create(args.model, **engine_options(args))

    from jaxserve.core.progress_bars import CompileBar
    from jaxserve.engine.build.startup.compiled_folder import CACHE, clear
    from jaxserve.engine.build.startup.precompile import write_compiled
    from jaxserve.engine.llm import LLM

    clear(args.out)
    config = replace(config, compilation_cache_dir=str(args.out / CACHE))
    parts = LLM.from_config(config, show_progress=not args.quiet).parts
    total = len(parts.runner.programs.all(parts.spec.buckets.all()))
    with CompileBar(not args.quiet, total) as bar:
        write_compiled(config, parts.spec, parts.described, args.out, bar.update)
    if not args.quiet:
        num_bytes = sum(path.stat().st_size for path in args.out.rglob("*") if path.is_file())
        print(f"{args.out}: {total} programs, {num_bytes / 1e6:.1f} MB; use it with --compiled", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve compile",
        description="Compile all programs of an engine for this machine's devices into a folder, so that later "
        "processes start in seconds: jaxserve compile smollm2-135m-instruct --out ./smollm2-compiled, then "
        "jaxserve generate smollm2-135m-instruct --compiled ./smollm2-compiled. The folder is valid for the same "
        "versions of jaxserve and JAX, the same device model and the options given here.",
    )
    parser.add_argument("model", help=MODEL_OR_SHAPE_HELP)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder to write; an earlier result in it is deleted"
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress and no summary")
    add_engine_flags(parser, skip=["chat_template", "compilation_cache_dir", "compiled", "keep_lowered"])
    return parser
