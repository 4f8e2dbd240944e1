"""Wiring: `jaxserve batch IN.jsonl OUT.jsonl`: answers a file of requests in OpenAI's batch format."""

import argparse
import asyncio
import sys
import tempfile
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoints.fetch.download_cache import cache_folder
from jaxserve.cli.args.arg_types import MODEL_HELP
from jaxserve.cli.args.dataclass_flags import add_engine_flags, add_flags, engine_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.server.server_config import ServerConfig

if TYPE_CHECKING:
    from jaxserve.batch.bucket_files import BucketMirror
    from jaxserve.batch.results_journal import ResultsJournal
    from jaxserve.batch.run_batch import BatchSummary
    from jaxserve.engine.llm import LLM

SERVER_OPTIONS = ("tool_call_parser", "reasoning_parser", "lora_modules")  # those of a server that change results
INFLIGHT_PER_SEQ = 4  # lines in flight per running sequence, so that the engine never waits for the next one


def run(argv: list[str]) -> int:
    """Exit code 1 where a line failed, 2 where none succeeded."""
    args = _parser().parse_args(argv)
    if args.max_inflight is not None and args.max_inflight < 1:
        raise RequestError("--max-inflight must be at least 1", "max_inflight")
    config = EngineConfig.create(args.model or "any", **engine_options(args))  # reports mistakes first
    try:
        from jaxserve.batch.bucket_files import BucketMirror, download, is_remote
        from jaxserve.batch.check_input import check_input, check_models
        from jaxserve.server.model_names import check_modules, default_name
    except ModuleNotFoundError as error:
        raise ConfigError(f"batch needs {error.name}: pip install 'jaxserve-engine[server]'") from None
    with tempfile.TemporaryDirectory(prefix="jaxserve-batch-") as folder:
        source = download(args.input, Path(folder)) if is_remote(args.input) else Path(args.input)
        if not source.is_file():
            raise RequestError(f"{args.input} {'is a folder' if source.is_dir() else 'does not exist'}", "input")
        found = check_input(source)
        if not found.num_lines:
            raise RequestError(f"{args.input} has no lines: there is nothing to answer", "input")
        chosen = {name: getattr(args, name) for name in SERVER_OPTIONS if hasattr(args, name)}
        adapters = [module.request.lora_name for module in ServerConfig(**chosen).adapter_modules]
        model = args.model or next((name for name in found.models if name not in adapters), None)
        if model is None:
            raise RequestError(f"{args.input} names no model: give --model", "model")
        names = tuple(args.served_model_name or dict.fromkeys((default_name(model), model)))
        server_config = ServerConfig(served_model_name=names, trust_request_chat_template=True, **chosen)
        check_modules(server_config, names, is_enabled=config.enable_lora)
        check_models(found, (*names, *adapters), args.input)
        mirror = BucketMirror(args.output, _spool()) if is_remote(args.output) else None
        output = Path(args.output) if mirror is None else mirror.path
        if output.resolve() == source.resolve():
            raise RequestError("input and output are the same file", "output")
        return _run(_Job(args, replace(config, model=model), server_config, source, found.num_lines), output, mirror)


@dataclass(frozen=True, slots=True)
class _Job:
    """A file of `num_lines` lines for one model, which has the names of `server_config`."""

    args: argparse.Namespace
    config: EngineConfig
    server_config: ServerConfig
    source: Path
    num_lines: int


def _run(job: _Job, output: Path, mirror: "BucketMirror | None") -> int:
    from jaxserve.batch.results_journal import ResultsJournal

    args, num_lines = job.args, job.num_lines
    with ResultsJournal(output, job.source) as journal:
        if len(journal.done) == num_lines:
            report = [f"all {num_lines} lines have a result in {args.output}: no model is loaded"]
        else:
            from jaxserve.engine.llm import LLM

            llm = LLM.from_config(job.config, show_progress=not args.quiet)  # an interrupt ends it at once
            for module in job.server_config.adapter_modules:
                llm.load_adapter(module.request)
            summary = asyncio.run(_answer(job, llm, journal, mirror))
            report = [_summary(summary, journal.errors.num_failed, args.output)]
        if mirror is not None:
            mirror.update(is_last=True)
    errors = journal.errors
    if not args.quiet:
        print(*report, *errors.report(), sep="\n", file=sys.stderr)
    return 0 if not errors.num_failed else 2 if errors.num_failed == num_lines else 1


async def _answer(job: _Job, llm: "LLM", journal: "ResultsJournal", mirror: "BucketMirror | None") -> "BatchSummary":
    from jaxserve.batch.run_batch import run_batch
    from jaxserve.core.progress_bars import GenerateBar
    from jaxserve.engine.async_llm import AsyncLLM
    from jaxserve.server.server_state import ServerState

    args, config, server_config = job.args, job.config, job.server_config
    state = ServerState(server_config, server_config.served_model_name, client_templates=None)  # the file is the user's
    async with AsyncLLM.from_llm(llm) as engine:
        state.open(engine.client)
        max_inflight = args.max_inflight or INFLIGHT_PER_SEQ * engine.client.info.max_num_seqs
        num_done = len(journal.done)
        with GenerateBar(not args.quiet, job.num_lines, desc="Answering", unit="line", n=num_done) as bar:

            def progress(num_lines: int, num_tokens: int) -> None:
                bar.update(num_lines, num_tokens)
                if mirror is not None:
                    mirror.update()

            return await run_batch(
                state, job.source, journal, max_inflight=max_inflight, seed=config.seed, progress=progress
            )


def _summary(summary: "BatchSummary", num_failed: int, output: str) -> str:
    before = f", {summary.num_before} of them by earlier runs" if summary.num_before else ""
    speed = summary.num_tokens / max(summary.work_s, 1e-9)
    return (
        f"{summary.num_lines} lines answered{before}, {num_failed} with an error; {summary.num_tokens} tokens "
        f"in {summary.work_s:.1f} s, {speed:.1f} tokens/s, loading and compilation not counted; results in {output}"
    )


def _spool() -> Path:
    """The local folder of results that are copied to a bucket."""
    folder = cache_folder(None) / "batch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve batch",
        description="Answer a file of requests in OpenAI's batch format, one JSON object per line. Each result is "
        "appended to OUT when it is ready; run the same command again to resume after an interruption.",
    )
    parser.add_argument("input", metavar="IN.jsonl", help="requests; a local file or gs://")
    parser.add_argument("output", metavar="OUT.jsonl", help="results; a local file or gs://")
    parser.add_argument("--model", help=f"{MODEL_HELP}; default: the first line's")
    parser.add_argument(
        "--served-model-name",
        action="append",
        help="name of the model in requests; default: MODEL, and of a path its last part; repeatable",
    )
    parser.add_argument(
        "--max-inflight",
        type=int,
        help=f"lines that are answered at the same time; default: {INFLIGHT_PER_SEQ} per sequence of the engine",
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress and no summary")
    add_flags(parser, ServerConfig, skip=[f.name for f in fields(ServerConfig) if f.name not in SERVER_OPTIONS])
    # The engine's queue needs no limit here: --max-inflight bounds it, and no line is rejected.
    add_engine_flags(parser, skip=("max_num_waiting", "max_waiting_tokens"), seed_help="seed of requests without one")
    return parser
