"""Host: the tables of a profile: device time by scope, host time by part of a step."""

from typing import TYPE_CHECKING, Any

from jaxserve.bench.profile.host_parts import PARTS
from jaxserve.bench.report_table import report_table

if TYPE_CHECKING:
    from rich.table import Table


def tables(report: dict[str, Any]) -> "list[Table]":
    """One table per program, the costliest first; then the host's time and the steps."""
    return [*map(_device, report["programs"]), _host(report), _whole(report)]


def _device(program: dict[str, Any]) -> "Table":
    runs = f"{program['num_runs']} run{'s' if program['num_runs'] > 1 else ''}"
    title = f"{program['name']}: {runs}, median {program['p50_ms']:.2f} ms"
    table = report_table(title, "scope", "ms per run", "share")
    rows = [*program["scopes_ms"].items(), ("(no scope)", program["unnamed_ms"])]
    for name, spent_ms in [*rows, ("(between operations)", program["between_ms"])]:
        table.add_row(name, f"{spent_ms:.3f}", f"{spent_ms / program['mean_ms']:.1%}")
    return table


def _host(report: dict[str, Any]) -> "Table":
    host_ms = report["host_ms"]
    table = report_table("Host, by part of a step", "part", "p50 ms", "")
    table.columns[2].justify = "left"
    for name, work in PARTS.items():
        if name in host_ms:
            table.add_row(name, f"{host_ms[name]:.3f}", work)
    table.add_row("whole step", f"{host_ms['whole']:.3f}", "")
    return table


def _whole(report: dict[str, Any]) -> "Table":
    table = report_table("Steps, traced and untraced", "", "traced", "untraced")
    both = report["steps"], report["untraced_steps"]
    for kind in both[0]["kinds"]:
        cells = [f"{1e3 * s['kinds'][kind]['p50_s']:.2f}" if kind in s["kinds"] else "–" for s in both]
        table.add_row(f"{kind}: ms on the device, p50", *cells)
    table.add_row("time with no step in flight", *(f"{s['idle_share']:.1%}" for s in both))
    table.add_row("time in which the host did not wait", *(f"{s['host_share']:.1%}" for s in both))
    table.add_row("padding in token positions", *(f"{s['token_padding']:.1%}" for s in both))
    return table
