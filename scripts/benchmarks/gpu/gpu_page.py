"""The report: a markdown page with tables, drawings in separate files, and the figures as JSON."""

import json
from pathlib import Path
from typing import Any

from scripts.benchmarks.gpu import gpu_tables
from scripts.benchmarks.gpu.svg_bars import bars
from scripts.benchmarks.gpu.task_list import Results
from scripts.benchmarks.report_page import as_markdown, document

AIMS = {"decode": 0.75, "prefill": 0.55, "engine": 0.8}
DRY = "**A dry run on the CPU: it tests the script, and its numbers are meaningless.**"
EXPLAINED = {
    "First look": "With the tile sizes that were there before tuning.",
    "Steps of prompts": "The step of the most prompt tokens. *MFU*: rate of the products' operations, without "
    "attention's, as a share of the product's rate.",
    "Throughput": "From the first prompt to the last token, all prompts at once, every program compiled before.",
    "Decode attention": "One layer, all rows of one token. *MBU*: rate of the keys and values that must be read, as a "
    "share of the copy's rate; *times ours*: the time as a multiple of mosaic_gpu's. xla and mosaic_gpu also store the "
    "new tokens in the pool; the others store nothing, and cuDNN and PyTorch read contiguous keys and values.",
    "Prefill attention": "One layer, whole prompts. *MFU*: rate of the operations that causality requires, as a share "
    "of the product's rate.",
    "Products of few rows": "One product of a layer, the layers in turn. *MBU*: rate of the layer's weights, as a "
    "share of the copy's rate; the sizes are the kernel's fastest; *used*: by `backend=\"auto\"` from now on.",
    "Adapters": "What adapters add to all products of a layer, the layers in turn, without those products. *MBU*: rate "
    "of the matrices of the rows' adapters, as a share of the copy's rate.",
    "Drafts of a smaller model": "Each draft is accepted at a given rate if those before it are. *gain*: tokens/s over "
    "those without drafts; *formula*: (1 - a^(n+1)) / ((1 - a)(n c + 1)) with rate a, n drafts, and c the time of the "
    "draft model's step over that of the model's, each alone (Leviathan et al., 2023).",
    "Where a decode step's time goes": "Traced, by scope of the model; the figures file also has the operations.",
    "Whole decode steps": "Medians, with the host's part. *MBU*: rate of weights (without the embedding), keys and "
    "values, as a share of the copy's rate. *context*: positions per sequence.",
}


def write(results: Results, about: dict[str, str], folder: Path, name: str, *, is_dry: bool) -> list[Path]:
    """Writes NAME.md, NAME.json and the drawings; returns their paths."""
    drawings = {f"{name}-{part}.svg": svg for part, svg in drawn(results).items()}
    content = {
        "is_dry_run": is_dry,
        "about": about,
        "records": results.records,
        "missing": results.missing,
        "took_s": {part: round(took, 1) for part, took in results.took_s.items()},
    }
    files = {
        f"{name}.md": page(results, about, list(drawings), is_dry=is_dry),
        f"{name}.json": json.dumps(content, indent=1) + "\n",
        **drawings,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    return [folder / file for file in files]


def page(results: Results, about: dict[str, str], drawings: list[str], *, is_dry: bool) -> str:
    parts = [f"# Measured on {about.get('device', 'no device')}", *([DRY] if is_dry else [])]
    parts.append(as_markdown([["", ""], *([key, text] for key, text in about.items())]))
    parts.append(_verdict(results))
    for title, rows in sections(results).items():
        if len(rows) > 1:
            parts += [f"## {title}", *([EXPLAINED[title]] if title in EXPLAINED else []), as_markdown(rows)]
    parts += [f"![{file}]({file})" for file in drawings]
    parts.append("[gpu.md](gpu.md) describes the method.")
    return document(parts)


def sections(results: Results) -> dict[str, gpu_tables.Rows]:
    """All tables by title; an empty one has only its heading."""
    return {
        "Ceilings": gpu_tables.ceilings(results),
        "First look": gpu_tables.first(results),
        "Products of few rows": gpu_tables.products(results),
        "Adapters": gpu_tables.adapters(results),
        "Decode attention": gpu_tables.decode(results),
        "Prefill attention": gpu_tables.prefill(results),
        "Whole decode steps": gpu_tables.engine(results),
        "Drafts of a smaller model": gpu_tables.drafts(results),
        "Where a decode step's time goes": gpu_tables.profile(results),
        "Steps of prompts": gpu_tables.prompts(results),
        "Throughput": gpu_tables.throughput(results),
        "Not measured": gpu_tables.missing(results),
        "Checks": gpu_tables.checks(results),
        "Tile sizes": gpu_tables.tuned(results),
    }


def drawn(results: Results) -> dict[str, str]:
    """Drawings by part: attention as a share of the ceiling that bounds it, steps as a share of the bandwidth."""
    groups: dict[str, dict[str, dict[str, float]]] = {part: {} for part in AIMS}
    for r in results.of("attention"):
        part = "decode" if r["is_decode"] else "prefill"
        value = gpu_tables.decode_mbu(r, results) if r["is_decode"] else gpu_tables.prefill_mfu(r, results)
        groups[part].setdefault(r["workload"], {})[r["by"]] = value or 0.0
    for r in results.of("engine"):
        kind = f"{r['backend']}, {r['weights']}"
        groups["engine"].setdefault(f"{r['batch']} sequences", {})[kind] = gpu_tables.step_mbu(r, results) or 0.0
    titles = {
        "decode": "Decode attention: share of the copy's bandwidth, %",
        "prefill": "Prefill attention: share of the product's rate, %",
        "engine": "Whole decode steps: share of the copy's bandwidth, %",
    }
    has_ceilings = bool(results.of("ceilings"))
    return {part: bars(titles[part], found, AIMS[part]) for part, found in groups.items() if found and has_ceilings}


def _verdict(results: Results) -> str:
    checked: list[dict[str, Any]] = results.of("checks")
    failed = [f"{task} ({table})" for table, tasks in results.failed.items() for task in tasks]
    failures = f" **Failed tasks**: {', '.join(failed)}." if failed else ""
    wrong = [r["workload"] for r in checked if r["fault"]]
    if not checked:
        return f"No workload was checked in this run.{failures}"
    largest = max((r["error"] for r in checked if r["error"] is not None), default=float("nan"))
    if wrong:
        return f"**{len(wrong)} of {len(checked)} checked workloads are wrong**: {', '.join(wrong)}.{failures}"
    return f"All {len(checked)} checked workloads equal the reference: the largest error is {largest:.1e}.{failures}"
