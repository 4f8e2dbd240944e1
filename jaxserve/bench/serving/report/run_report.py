"""Host: `RunReport`: collects the runs of a benchmark: a table per run, JSON files and the HTML page."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxserve.bench.serving.benchmark import BenchmarkRun
from jaxserve.bench.serving.report.html_report import page
from jaxserve.bench.serving.report.json_result import details, notes, result_record
from jaxserve.bench.serving.report.run_summary import percentile_name, summarize
from jaxserve.bench.serving.report.text_table import failure_lines, table


@dataclass(frozen=True, slots=True)
class RunReport:
    """All runs so far.

    setup: the settings, which begin every result. metrics: those of the table. goodput_ms, percentiles: see
    `summarize`.
    """

    setup: Mapping[str, Any]
    metrics: Sequence[str]
    percentiles: Sequence[float]
    goodput_ms: Mapping[str, float]
    runs: list[BenchmarkRun] = field(default_factory=list[BenchmarkRun])
    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, run: BenchmarkRun) -> str:
        """Adds a run; returns its table with failures and notes."""
        figures = summarize(run.load, run.requests, goodput_ms=self.goodput_ms, percentiles=self.percentiles)
        found = result_record(run, figures, self.setup)
        self.runs.append(run)
        self.results.append(found)
        figures_table = table(found, self.metrics, [percentile_name(p) for p in self.percentiles])
        return "\n".join([figures_table, *failure_lines(found["failures"]), *notes(found)])

    def save(self, folder: Path, name: str | None, *, is_detailed: bool) -> Iterator[Path]:
        """Writes a JSON file per run into `folder`, which exists. name: None for a generated name."""
        for run, found in zip(self.runs, self.results, strict=True):
            path = folder / (name or self._name(run))
            if name and len(self.runs) > 1:
                path = path.with_stem(f"{path.stem}-concurrency{run.max_concurrency}")
            record = found | (details(run) if is_detailed else {})
            path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
            yield path

    def save_page(self, path: Path) -> None:
        """Writes the HTML page, unless there is no run."""
        if self.runs:
            path.write_text(page(self.runs, self.results, self.setup), encoding="utf-8")

    @property
    def is_interrupted(self) -> bool:
        return any(run.load.is_interrupted for run in self.runs)

    @property
    def has_completed(self) -> bool:
        """Whether any request completed."""
        return any(run.completed for run in self.runs)

    def _name(self, run: BenchmarkRun) -> str:
        """LABEL-RATEqps-concurrencyN-MODEL-TIME.json, as in vLLM."""
        limit = [] if run.max_concurrency is None else [f"concurrency{run.max_concurrency}"]
        model = str(self.setup["model_id"]).rpartition("/")[2]
        parts = [self.setup["label"], f"{self.setup['request_rate']}qps", *limit, model, self.setup["date"]]
        return "-".join(parts) + ".json"
