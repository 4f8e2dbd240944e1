"""Tables of the measurements, for the terminal and the page; shares are relative to the ceilings of the same run."""

from collections.abc import Iterable
from typing import Any

from scripts.benchmarks.gpu.task_list import Record, Results

Rows = list[list[str]]
NONE = "–"
PUBLISHED = {("fp8", 1024): "17,744 (TensorRT-LLM, Llama 3.1 8B)"}
"""Tokens/s out on an H200, by weights and tokens in and out of each prompt (performance overview of TensorRT-LLM)."""


def ceiling(results: Results) -> Record:
    """Rates of the plain copy and product; zeros if they were not measured."""
    found = results.of("ceilings")
    return found[0] if found else {"bytes_per_s": 0.0, "ops_per_s": 0.0}


def share(rate: float, of: float) -> float | None:
    return rate / of if of else None


def percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def decode_mbu(r: Record, results: Results) -> float | None:
    """Rate of the keys and values that must be read, as a share of the copy's rate."""
    return share(r["kv_bytes"] / r["call_s"], ceiling(results)["bytes_per_s"])


def prefill_mfu(r: Record, results: Results) -> float | None:
    return share(r["ops"] / r["call_s"], ceiling(results)["ops_per_s"])


def step_mbu(r: Record, results: Results) -> float | None:
    return share((r["weight_bytes"] + r["kv_bytes"]) / r["step_s"], ceiling(results)["bytes_per_s"])


def checks(results: Results) -> Rows:
    rows = [["workload", "pool", "error", "bound", ""]]
    for r in results.of("checks"):
        error = NONE if r["error"] is None else f"{r['error']:.1e}"
        rows.append([r["workload"], r["pool"], error, f"{r['bound']:.1e}", r["fault"] or "ok"])
    return rows


def tuned(results: Results) -> Rows:
    rows = [["workload", "kind of rows", "positions", "queries", "time, µs", ""]]
    for r in results.of("tune"):
        for one in r["tried"]:
            sizes = [str(one["block"].get(name, NONE)) for name in ("positions", "queries")]
            remark = one["problem"] or ("fastest" if one["is_fastest"] else "")
            rows.append([r["workload"], r["kind"], *sizes, _us(one["time_us"]), remark])
    return rows


def products(results: Results) -> Rows:
    """By XLA and by the kernel with its fastest sizes; MBU: of the weights."""
    rows = [["product", "XLA, µs", "MBU", "mosaic_gpu, µs", "MBU", "columns", "inputs", "splits", "used"]]
    for r in results.of("products"):
        best = next(one for one in r["tried"] if one["is_fastest"])
        cells: list[str] = []
        for time_us in (r["xla_us"], best["time_us"]):
            rate = share(1e6 * r["weight_bytes"] / time_us, ceiling(results)["bytes_per_s"])
            cells += [_us(time_us), percent(rate)]
        sizes = [str(best["block"][name]) for name in ("columns", "inputs", "splits")]
        rows.append([r["workload"], *cells, *sizes, "mosaic_gpu" if r["is_used"] else "XLA"])
    return rows


def adapters(results: Results) -> Rows:
    """MBU: of the matrices of the rows' adapters."""
    rows = [["adapters", "MB", "XLA, µs", "mosaic_gpu, µs", "MBU"]]
    for r in results.of("adapters"):
        rate = share(1e6 * r["adapter_bytes"] / r["kernel_us"], ceiling(results)["bytes_per_s"])
        size = f"{r['adapter_bytes'] / 1e6:,.1f}"
        rows.append([r["workload"], size, _us(r["xla_us"]), _us(r["kernel_us"]), percent(rate)])
    return rows


def ceilings(results: Results) -> Rows:
    rows = [["operation", "rate"]]
    for r in results.of("ceilings"):
        rows.append(["copy, bytes read and written", f"{r['bytes_per_s'] / 1e9:,.0f} GB/s"])
        rows.append(["bfloat16 product", f"{r['ops_per_s'] / 1e12:,.1f} TFLOP/s"])
    return rows


def decode(results: Results) -> Rows:
    rows = [["workload", "by", "time, µs", "GB/s", "MBU", "times ours"]]
    for r, ratio in _compared([r for r in results.of("attention") if r["is_decode"]]):
        rate = f"{r['kv_bytes'] / r['call_s'] / 1e9:,.0f}"
        rows.append([r["workload"], r["by"], _us(1e6 * r["call_s"]), rate, percent(decode_mbu(r, results)), ratio])
    return rows


def prefill(results: Results) -> Rows:
    rows = [["workload", "by", "time, µs", "TFLOP/s", "MFU", "times ours"]]
    for r, ratio in _compared([r for r in results.of("attention") if not r["is_decode"]]):
        rate = f"{r['ops'] / r['call_s'] / 1e12:,.1f}"
        rows.append([r["workload"], r["by"], _us(1e6 * r["call_s"]), rate, percent(prefill_mfu(r, results)), ratio])
    return rows


def first(results: Results) -> Rows:
    rows = [["", "time", "MBU"]]
    for r in results.of("first attention"):
        rows.append([f"{r['workload']} by {r['by']}", f"{_us(1e6 * r['call_s'])} µs", percent(decode_mbu(r, results))])
    for r in results.of("first engine"):
        name = f"step of {r['batch']} sequences, {r['backend']}"
        rows.append([name, f"{1e3 * r['step_s']:.2f} ms", percent(step_mbu(r, results))])
    return rows


def prompts(results: Results) -> Rows:
    """Steps that compute prompts; MFU: of the products, without attention."""
    rows = [["attention by", "weights", "tokens a step", "step, ms", "tokens/s", "MFU"]]
    found = {(r["backend"], r["weights"], r["prefill_tokens"]): r for r in results.of("engine") if r["prefill_s"]}
    for r in found.values():
        rate = share(r["prefill_ops"] / r["prefill_s"], ceiling(results)["ops_per_s"])
        times = f"{1e3 * r['prefill_s']:.2f}", f"{r['prefill_tokens'] / r['prefill_s']:,.0f}"
        rows.append([r["backend"], r["weights"], f"{r['prefill_tokens']:,}", *times, percent(rate)])
    return rows


def throughput(results: Results) -> Rows:
    rows = [["weights", "prompts", "tokens in and out, each", "time, s", "tokens/s out", "published elsewhere"]]
    for r in results.of("throughput"):
        rate = f"{r['tokens_out'] / r['took_s']:,.0f}"
        published = PUBLISHED.get((r["weights"], r["tokens_each"]), "")
        rows.append([r["weights"], str(r["prompts"]), f"{r['tokens_each']:,}", f"{r['took_s']:.1f}", rate, published])
    return rows


def engine(results: Results) -> Rows:
    rows = [["attention by", "weights", "sequences", "context", "step, ms", "tokens/s", "weights, GB", "KV, GB", "MBU"]]
    for r in sorted(results.of("engine"), key=lambda r: r["batch"]):
        gigabytes = [f"{r[name] / 1e9:,.1f}" for name in ("weight_bytes", "kv_bytes")]
        rate = f"{r['batch'] / r['step_s']:,.0f}"
        cells = [r["backend"], r["weights"], str(r["batch"]), f"{r['context']:,.0f}", f"{1e3 * r['step_s']:.2f}", rate]
        rows.append([*cells, *gigabytes, percent(step_mbu(r, results))])
    return rows


def drafts(results: Results) -> Rows:
    """formula: with the measured number of drafts and times of both models alone."""
    measured = ["drafts a pass", "tokens a pass", "pass, ms", "draft model's step, ms", "model's step, ms"]
    rows = [["accepted", "sequences", *measured, "gain", "formula"]]
    alone = {(r["model"], r["batch"]): r["step_s"] for r in results.of("drafts")}
    for r in (r for r in results.of("drafts") if r["rate"] is not None):
        draft_s, step_s = (alone.get((model, r["batch"])) for model in ("draft model", "model"))
        if draft_s is None or step_s is None:
            continue
        times = [f"{1e3 * s:.2f}" for s in (r["step_s"], draft_s, step_s)]
        gain = r["tokens_a_pass"] * step_s / r["step_s"]
        formula = expected_gain(r["rate"], r["drafts_a_pass"], draft_s / step_s)
        counts = [f"{r[name]:.2f}" for name in ("drafts_a_pass", "tokens_a_pass")]
        rows.append([str(r["rate"]), str(r["batch"]), *counts, *times, f"{gain:.2f}", f"{formula:.2f}"])
    return rows


def profile(results: Results) -> Rows:
    """Of a traced decode step, by scope of the model."""
    records = results.of("profile")
    rows = [["µs a step", *(f"{r['batch']} sequences" for r in records)]]
    names = dict.fromkeys(name for r in records for name in r["scopes_us"])
    rows += [[name or "no scope", *(_us(r["scopes_us"].get(name)) for r in records)] for name in names]
    idle = ["nothing runs", *(_us(r["idle_us"]) for r in records)]
    return [*rows, idle] if records else rows


def missing(results: Results) -> Rows:
    rows = [["table", "task", "reason"]]
    for part, found in results.missing.items():
        rows += [[part, name, reason.replace("|", "/")] for name, reason in found.items()]
    return rows


def _compared(records: list[Record]) -> Iterable[tuple[Record, str]]:
    """Records grouped by workload, each with its time as a multiple of that of this project's kernel."""
    by_workload: dict[str, list[Record]] = {}
    for r in records:
        by_workload.setdefault(r["workload"], []).append(r)
    for found in by_workload.values():
        ours = next((r["call_s"] for r in found if r["is_ours"]), None)
        for r in found:
            yield r, NONE if ours is None else f"{r['call_s'] / ours:.2f}"


def _us(value: Any) -> str:
    return NONE if value is None else f"{value:,.1f}"


def expected_gain(rate: float, num_drafts: float, cost: float) -> float:
    """Leviathan et al. (2023), theorem 3.8. rate: below 1. cost: of a step of the draft model, as a share of the
    model's."""
    return (1 - rate ** (num_drafts + 1)) / (1 - rate) / (num_drafts * cost + 1)
