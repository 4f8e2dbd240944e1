"""Host: the report of a training run as one self-contained HTML file."""

from collections.abc import Mapping
from html import escape
from importlib import resources

import numpy as np

from jaxserve.bench.serving import report
from jaxserve.bench.serving.report.html_report import STYLE
from jaxserve.bench.serving.report.svg import LineSeries, chart

MAX_POINTS = 200


def training_page(
    title: str, losses: np.ndarray, shares: tuple[tuple[float, ...], ...], facts: Mapping[str, object]
) -> str:
    """losses: float32[steps, K]. shares: by head and rank. facts: what else is known of the run."""
    style = resources.files(report).joinpath(STYLE).read_text("utf-8")
    every = max(1, len(losses) // MAX_POINTS)
    means = [(i, losses[i : i + every].mean(axis=0)) for i in range(0, len(losses), every)]
    curves = [
        LineSeries([(float(i), float(mean[head])) for i, mean in means], f"head {head}") for head in range(len(shares))
    ]
    ranks = "".join(f"<th>guess {rank + 1}</th>" for rank in range(len(shares[0])))
    rows = "".join(
        f"<tr><th>head {head}</th>{''.join(f'<td>{share:.3f}</td>' for share in of_head)}</tr>"
        for head, of_head in enumerate(shares)
    )
    settings = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style>\n<h1>{escape(title)}</h1>\n"
        f'<div class="charts">{chart("Cross-entropy of each head (nats)", "step", curves)}</div>\n'
        f"<h2>Held-out tokens: how often each guess is right</h2>\n<table><tr><th></th>{ranks}</tr>{rows}</table>\n"
        f"<h2>Settings</h2>\n<dl>{settings}</dl>\n</html>\n"
    )
