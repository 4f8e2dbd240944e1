"""Renders the page of a comparison: ratio, method, all figures, and the limits of jaxserve."""

from typing import Any

from scripts.benchmarks.compare.comparison import BUSY_SHARE, Comparison
from scripts.benchmarks.report_page import as_markdown, conditions, document, hardware_text, listing, without_folder

TITLE = "# jaxserve and transformers on a CPU"
RULES = """\
The same requests on both sides: greedy, with fixed output lengths, all submitted at the start. jaxserve uses continuous
batching; transformers (torch, eager) runs static batches in order of arrival, padded on the left, each until its
longest output is done, and only requested tokens count. The ratio is relative to its fastest batch size. Weights come
from the same GGUF file and are dense, of the same type, on both sides. Loading, compilation and a warm-up are not timed
on either side. The two sides run alternately in separate processes; the order changes from round to round, and the
median of a side's rounds counts."""


def page(comparison: Comparison, argv: list[str], spec: dict[str, Any], about: dict[str, Any]) -> str:
    return document(
        [
            TITLE,
            ratio_lines(comparison),
            RULES,
            _conditions(argv, spec, about),
            _rates(comparison),
            _agreement(comparison, spec["dtype"]),
            "## What limits jaxserve",
            _limits(about["jaxserve"]["steps"]),
        ]
    )


def ratio_lines(comparison: Comparison) -> str:
    rounds = ", ".join(f"{ratio:.2f}" for ratio in comparison.round_ratios)
    line = (
        f"ratio {comparison.ratio:.2f}: {comparison.jaxserve.rate:.1f} output tokens/s against "
        f"{comparison.best.rate:.1f} ({comparison.best.name}); by round: {rounds}; of each side's "
        f"fastest round: {comparison.fastest_ratio:.2f}."
    )
    if comparison.is_busy:
        line += (
            f"\n\n**Measured on a busy machine**: other processes used up to {comparison.others_share:.0%} of the "
            f"CPU time (more than {BUSY_SHARE:.0%}). This slows torch more than jaxserve: measure again."
        )
    return line


def _conditions(argv: list[str], spec: dict[str, Any], about: dict[str, Any]) -> str:
    inputs, outputs = ([f(lens) for f in (min, max, sum)] for lens in _lens(spec["timed"]))
    ours, theirs = about["jaxserve"], about["transformers"]
    return conditions(
        "scripts/compare_transformers",
        argv,
        hardware=f"{hardware_text(ours['hardware'])}; torch on {spec['num_threads']} threads",
        model=f"{without_folder(about['model'])}, {spec['dtype']}",
        workload=f"{len(spec['timed']['prompts'])} requests, {inputs[2]:,} input tokens ({inputs[0]} to {inputs[1]} "
        f"each), {outputs[2]:,} output tokens ({outputs[0]} to {outputs[1]})",
        jaxserve=listing(ours["versions"] | ours["limits"]),
        transformers=listing(theirs["versions"] | {"attention": theirs["attention"]}),
    )


def _rates(comparison: Comparison) -> str:
    rows = [["", "output tokens/s", "by round", "jaxserve's ratio to it", "requested share of tokens", "memory, MiB"]]
    for row in (comparison.jaxserve, *comparison.rows):
        name = f"**{row.name}**" if row is comparison.best else row.name
        rounds = ", ".join(f"{rate:.1f}" for rate in row.rates)
        ratio = f"{comparison.jaxserve.rate / row.rate:.2f}"
        rows.append([name, f"{row.rate:.1f}", rounds, ratio, f"{row.useful_share:.0%}", f"{row.rss_bytes >> 20:,}"])
    memory = "Memory is the peak resident set, loading included; that of jaxserve includes its KV pool."
    return f"{as_markdown(rows)}\n\n{memory}"


def _agreement(comparison: Comparison, dtype: str) -> str:
    return (
        f"For information: {comparison.equal_requests:.0%} of the requests have the same tokens on both sides in "
        f"{dtype}, and {comparison.equal_tokens:.0%} of all tokens precede the first difference. (`scripts/prove "
        "parity` compares every token, in float32.)"
    )


def _limits(steps: dict[str, Any]) -> str:
    rows = [["step", "count", "p50, ms", "p99, ms", "share of the time"]]
    for kind, times in steps["kinds"].items():
        share = times["total_s"] / steps["wall_s"]
        milliseconds = [f"{1e3 * times[name]:.1f}" for name in ("p50_s", "p99_s")]
        rows.append([kind, str(times["count"]), *milliseconds, f"{share:.1%}"])
    text = (
        f"{steps['token_padding']:.1%} of the computed token positions were padding, {steps['row_padding']:.1%} of the "
        f"rows of the LM head. In {steps['idle_share']:.1%} of the time no step was in flight; in "
        f"{steps['host_share']:.1%} the host did not wait for the device. Figures of the last round."
    )
    return f"{as_markdown(rows)}\n\n{text}"


def _lens(workload: dict[str, list]) -> tuple[list[int], list[int]]:
    return [len(prompt) for prompt in workload["prompts"]], workload["output_lens"]
