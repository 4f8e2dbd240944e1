"""Measures constrained decoding's work on the host: masks, steps, compilation, start-up; `--help` lists options."""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from checkpoints.formats.gguf import GgufFile
from checkpoints.sources import resolve
from jaxserve.bench import machine
from jaxserve.cli.args.arg_types import count
from jaxserve.constrained.canonical_tokenizer import CanonicalTokenizer
from jaxserve.constrained.compile_grammar import compile_grammar
from jaxserve.constrained.grammar_compiler import GrammarCompiler
from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary
from jaxserve.constrained.matchers import Matchers
from jaxserve.constrained.token_slices import sliced
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from scripts.benchmarks.grammars.grammar_cases import CASES
from scripts.benchmarks.report_page import (
    as_markdown,
    conditions,
    document,
    hardware_text,
    listing,
    machine_facts,
    write,
)

REPORT = Path(__file__).parents[3] / "docs" / "benchmarks" / "grammars.md"
MODELS = {"smollm2-135m-instruct": 49_152, "gemma-3-270m": 262_144}  # columns of the logits
NUM_ROWS = (1, 64, 256)
INTRODUCTION = """# Constrained decoding on the host

What grammars cost, without a model: texts of nine kinds (`scripts/benchmarks/grammars/grammar_cases.py`) are followed
token by token with the tokenizers of SmolLM2 and Gemma 3."""
MASKS = """## Masks

Processor time of the mask after each token, one at a time, in µs."""
STEPS = """## Steps

A step tells the grammar process which token each of so many sequences has got, and returns their masks and forced
tokens. The sequences have all nine kinds of constraints; one that ends is replaced. *Wall* is elapsed time of
`Matchers.advance`, which other processes on the machine lengthen; *CPU* is the processor time of both processes for a
row. Threads that computed masks: {threads}."""
OTHERS = """## Start and compilation

*Start* is the time from starting a process to its first mask. *Compilation* is the time of a check of a constraint
that was not checked before."""


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    hardware, load = machine.host(), os.getloadavg()[0]
    record: dict[str, Any] = {"masks": {}, "steps": {}, "start": {}, "compile": {}}
    for model, vocab_size in MODELS.items():
        tokenizer = _tokenizer(model)
        vocabulary = constraint_vocabulary(tokenizer, vocab_size)
        print(f"{model}: masks", file=sys.stderr)
        record["masks"][model] = mask_times_us(tokenizer, vocabulary, args.texts)
        for num_rows in NUM_ROWS:
            print(f"{model}: steps of {num_rows} rows", file=sys.stderr)
            record["steps"][f"{model}, {num_rows}"] = step_times(tokenizer, vocabulary, num_rows, args)
        print(f"{model}: start and compilation", file=sys.stderr)
        record["start"][model], record["compile"][model] = start_and_compile_s(vocabulary)
    record |= machine_facts(load, hardware)
    write(args.out, page(record, args, argv), record)
    return 0


def _tokenizer(model: str) -> Tokenizer:
    file = GgufFile(resolve(model).weights)
    try:
        return tokenizer_from_gguf(file.metadata)
    finally:
        file.close()


def quantiles(values: Sequence[float]) -> list[float]:
    """The median, the 99th percentile and the highest."""
    return [round(float(np.quantile(values, q)), 9) for q in (0.5, 0.99, 1)]


def mask_times_us(tokenizer: Tokenizer, vocabulary: GrammarVocabulary, num_texts: int) -> dict[str, list[float]]:
    """Kind of constraint → quantiles of the time of a mask; computed in this process, without messages."""
    tokens = CanonicalTokenizer(vocabulary.token_bytes, vocabulary.vocab_size, vocabulary.tokenizer_json)
    backend = sliced(tokens)
    row = np.zeros(vocabulary.num_row_words, np.uint32)
    found: dict[str, list[float]] = {}
    for name, case in CASES.items():
        times = found[name] = []
        start = compile_grammar(backend, StructuredOutputsParams(**case.params))
        for seed in range(num_texts):
            matcher = start.deep_copy()
            for token in tokenizer.encode(case.text(Random(seed)), add_special_tokens=False):
                matcher.compute_ff_tokens()  # kept for the mask
                begin_s = time.thread_time()
                matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
                times.append((time.thread_time() - begin_s) * 1e6)
                assert matcher.consume_token(token), (name, matcher.get_error())
    found["all"] = list(itertools.chain(*found.values()))
    return {name: quantiles(times) for name, times in found.items()}


def texts(tokenizer: Tokenizer) -> Iterator[tuple[StructuredOutputsParams, list[int]]]:
    """Constraints in turn, with the tokens of a new text."""
    for seed, case in enumerate(itertools.cycle(CASES.values())):
        ids = tokenizer.encode(case.text(Random(seed)), add_special_tokens=False)
        yield StructuredOutputsParams(**case.params), ids


def step_times(tokenizer: Tokenizer, vocabulary: GrammarVocabulary, num_rows: int, args: Any) -> dict[str, Any]:
    """Quantiles of a step's seconds, processor time of a row in µs, and how many tokens were forced and drawn."""
    matchers = Matchers(vocabulary)
    source, numbers = texts(tokenizer), itertools.count()
    left: dict[int, list[int]] = {}
    new: dict[int, tuple[int, ...]] = {}
    wall_s: list[float] = []
    cpu_s, num_forced, num_drawn = 0.0, 0, 0
    for step in range(args.steps + args.skipped):
        while len(left) < num_rows:
            params, ids = next(source)
            sequence_id = next(numbers)
            matchers.start(sequence_id, params, tokenizer.eos_ids)
            left[sequence_id], new[sequence_id] = ids, ()
        while not all(matchers.is_ready(i) for i in left):
            time.sleep(0.001)
        theirs_s, own_s, begin_s = _cpu_s(matchers), time.process_time(), time.perf_counter()
        found = matchers.advance(new)
        elapsed_s, own_s = time.perf_counter() - begin_s, time.process_time() - own_s
        if step >= args.skipped:
            wall_s.append(elapsed_s)
            cpu_s += own_s + _cpu_s(matchers) - theirs_s
        new = {}
        for sequence_id, row in found.items():
            assert row.error is None, row.error
            ids = left[sequence_id]
            is_same = list(row.forced) == ids[: len(row.forced)]
            del ids[: len(row.forced)]
            num_forced += len(row.forced)
            if not ids or not is_same:
                matchers.drop(sequence_id)
                del left[sequence_id]
                continue
            new[sequence_id] = (ids.pop(0),)
            num_drawn += 1
    matchers.close()
    row_us = cpu_s / len(wall_s) / num_rows * 1e6
    return {"wall_s": quantiles(wall_s), "row_us": row_us, "forced": num_forced, "drawn": num_drawn}


def _cpu_s(matchers: Matchers) -> float:
    """Processor time of the grammar process so far."""
    process = matchers._process._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    threads = Path(f"/proc/{process.process.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def start_and_compile_s(vocabulary: GrammarVocabulary) -> tuple[dict[str, float], list[float]]:
    begin_s = time.perf_counter()
    matchers = Matchers(vocabulary)
    matchers.start(0, StructuredOutputsParams(regex="a"), ())
    matchers.advance({0: ()})
    masks_s = time.perf_counter() - begin_s
    matchers.close()
    begin_s = time.perf_counter()
    compiler = GrammarCompiler(vocabulary)
    compiler.check(StructuredOutputsParams(regex="a"))
    check_s = time.perf_counter() - begin_s
    times: list[float] = []
    for i in range(20):
        for case in CASES.values():
            params = dict(case.params)
            if "json" in params:
                params["json"] = {**params["json"], "title": str(i)}
            elif i:
                continue
            begin_s = time.perf_counter()
            compiler.check(StructuredOutputsParams(**params))
            times.append(time.perf_counter() - begin_s)
    compiler.close()
    return {"masks": masks_s, "checks": check_s}, quantiles(times)


def page(record: dict[str, Any], args: argparse.Namespace, argv: list[str]) -> str:
    before, after = record["load"]
    facts = conditions(
        "python",
        ["-m", "scripts.benchmarks.grammars.bench_grammars", *argv],
        hardware=hardware_text(record["hardware"]),
        versions=listing(record["versions"]),
        load=f"{before:.1f} before, {after:.1f} after: number of runnable processes, including this one",
    )
    masks = [["constraint", *(f"{model}: {q}" for model in MODELS for q in ("50 %", "99 %", "most"))]]
    for name in [*CASES, "all"]:
        times = itertools.chain(*(found[name] for found in record["masks"].values()))
        masks.append([name, *(f"{time_us:,.0f}" for time_us in times)])
    steps = [["vocabulary, rows", "wall, 50 % (ms)", "wall, 99 % (ms)", "CPU of a row (µs)", "forced of all tokens"]]
    for name, found in record["steps"].items():
        wall = [f"{seconds * 1e3:.2f}" for seconds in found["wall_s"][:2]]
        share = found["forced"] / (found["forced"] + found["drawn"])
        steps.append([name, *wall, f"{found['row_us']:.0f}", f"{share:.0%}"])
    others = [["", *MODELS]]
    for heading, key in (("start of the masks' process (s)", "masks"), ("start of the checks' process (s)", "checks")):
        others.append([heading, *(f"{found[key]:.2f}" for found in record["start"].values())])
    for i, heading in enumerate(("compilation, 50 % (ms)", "compilation, 99 % (ms)")):
        others.append([heading, *(f"{times[i] * 1e3:.1f}" for times in record["compile"].values())])
    threads = STEPS.format(threads=max(1, min(8, (os.cpu_count() or 1) // 2)))
    tables = [MASKS, as_markdown(masks), threads, as_markdown(steps), OTHERS, as_markdown(others)]
    return document([INTRODUCTION, facts, *tables])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.grammars.bench_grammars",
        description="Measure masks, steps, compilation and start-up of constrained decoding.",
    )
    parser.add_argument("--texts", type=count, default=20, help="texts of a constraint (default: %(default)s)")
    parser.add_argument("--steps", type=count, default=300, help="steps that count (default: %(default)s)")
    parser.add_argument("--skipped", type=count, default=30, help="steps before these (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=REPORT, help=f"path of the page (default: {REPORT.name})")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
