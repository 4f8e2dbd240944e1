"""Host: the report of an offline benchmark: a JSON record and the tables on the terminal."""

from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jaxserve.bench import machine
from jaxserve.bench.report_table import report_table
from jaxserve.core.options.engine_config import EngineConfig

if TYPE_CHECKING:
    from rich.table import Table

    from jaxserve.bench.offline.measure import Measurement
    from jaxserve.engine.llm import LLM

THROUGHPUT_ROWS = {
    "request_throughput": ("requests/s", "{:.2f}"),
    "input_throughput": ("input tokens/s", "{:.1f}"),
    "output_throughput": ("output tokens/s", "{:.1f}"),
    "total_token_throughput": ("total tokens/s", "{:.1f}"),
    "total_input_tokens": ("input tokens", "{:,}"),
    "total_output_tokens": ("output tokens", "{:,}"),
}
LATENCIES = {"ttft": "time to first token", "tpot": "time per output token", "e2el": "end to end"}


def record(llm: "LLM", workload: dict[str, Any], result: dict[str, Any], measured: "Measurement") -> dict[str, Any]:
    """The complete record of one run; `result` is a summary. Times are in seconds unless the key has another unit."""
    return {
        **result,
        "workload": workload,
        "adapters_loaded": llm.stats.num_adapters_loaded,
        "steps": asdict(measured.steps),
        "warm_up": measured.warm_up,
        "timed": measured.timed,
        "memory": measured.memory,
        **about(llm),
    }


def about(llm: "LLM") -> dict[str, Any]:
    """Model, options, hardware, versions and date of a measurement."""
    return {
        "model": llm.config.model,
        "dtype": str(llm.parts.runner.settings.model.dtype),
        "options": options(llm.config),
        "limits": asdict(llm.parts.sizes),
        "hardware": machine.hardware(),
        "versions": machine.versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def options(config: EngineConfig) -> dict[str, Any]:
    """The options that differ from their defaults, without secrets."""
    values = {f.name: getattr(config, f.name) for f in fields(config) if f.repr and f.name != "model"}
    return {f.name: values[f.name] for f in fields(config) if f.name in values and values[f.name] != f.default}


def tables(report: dict[str, Any]) -> "list[Table]":
    """The result, then the time of the steps and other costs."""
    result = _throughput(report) if "output_throughput" in report else _latency(report)
    return [result, _steps(report), _costs(report)]


def _throughput(report: dict[str, Any]) -> "Table":
    table = report_table("Throughput", "", "")
    for key, (name, form) in THROUGHPUT_ROWS.items():
        table.add_row(name, form.format(report[key]))
    if "num_adapters" in (workload := report["workload"]):
        skew, on_device = workload["adapter_skew"], report["options"].get("max_loras", EngineConfig.max_loras)
        sizes = f"{workload['num_adapters']} of rank {workload['adapter_rank']}, skew {skew:g}"
        table.add_row("adapters", f"{sizes}, {on_device} on the device")
        table.add_row("adapters copied there, warm-up included", str(report["adapters_loaded"]))
    table.add_row("seconds of each pass", ", ".join(f"{s:.2f}" for s in report["elapsed_s"]))
    return table


def _latency(report: dict[str, Any]) -> "Table":
    names = ("mean", "p50", "p90", "p99")
    table = report_table(f"Latency of {report['completed']} requests, ms", "", *names)
    for key, name in LATENCIES.items():
        if f"mean_{key}_ms" in report:
            table.add_row(name, *(f"{report[f'{n}_{key}_ms']:.1f}" for n in names))
    return table


def _steps(report: dict[str, Any]) -> "Table":
    table = report_table("Steps", "kind", "count", "p50 ms", "p99 ms", "total s", "share of time")
    for kind, times in report["steps"]["kinds"].items():
        share = times["total_s"] / report["steps"]["wall_s"]
        milliseconds = (f"{1e3 * times[name]:.1f}" for name in ("p50_s", "p99_s"))
        table.add_row(kind, str(times["count"]), *milliseconds, f"{times['total_s']:.2f}", f"{share:.1%}")
    return table


def _costs(report: dict[str, Any]) -> "Table":
    steps, memory, hardware = report["steps"], report["memory"], report["hardware"]
    table = report_table("Costs", "", "")
    table.add_row("padding in token positions", f"{steps['token_padding']:.1%}")
    table.add_row("time with no step in flight", f"{steps['idle_share']:.1%}")
    table.add_row("time in which the host did not wait", f"{steps['host_share']:.1%}")
    parts = ("plan", "submit", "wait", "commit", "outside")
    table.add_row("host seconds", ", ".join(f"{part} {steps[f'{part}_s']:.2f}" for part in parts))
    for name, stats in (("warm-up", report["warm_up"]), ("timed passes", report["timed"])):
        compiled = f"{stats['num_executables']} executables, {stats['compile_s']:.1f} s in the compiler"
        table.add_row(name, f"{stats['seconds']:.1f} s, {compiled}")
    table.add_row("peak memory", f"{memory['rss_bytes'] / 2**20:,.0f} MiB resident")
    if memory["device_bytes"] is not None:
        table.add_row("peak device memory", f"{memory['device_bytes'] / 2**20:,.0f} MiB")
    table.add_row("model", f"{report['model']}, {report['dtype']}")
    table.add_row("processor", f"{hardware['cpu']}, {hardware['num_cores']} cores, {hardware['memory_gib']} GiB")
    table.add_row("devices", f"{hardware['num_devices']} × {hardware['device']}")
    return table
