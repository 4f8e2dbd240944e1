"""Host: the report of a training run as one self-contained HTML file."""

from collections.abc import Mapping

import numpy as np

from jaxserve.bench.charts.html_page import html_page, html_table
from jaxserve.bench.charts.svg import LineSeries, chart

MAX_POINTS = 200


def training_page(
    title: str, losses: np.ndarray, shares: tuple[tuple[float, ...], ...], facts: Mapping[str, object]
) -> str:
    """losses: float32[steps, depth]. shares: by depth and rank. facts: what else is known of the run."""
    every = max(1, len(losses) // MAX_POINTS)
    means = [(i, losses[i : i + every].mean(axis=0)) for i in range(0, len(losses), every)]
    curves = [
        LineSeries([(float(i), float(mean[depth])) for i, mean in means], f"depth {depth}")
        for depth in range(len(shares))
    ]
    table = html_table(
        [f"guess {rank + 1}" for rank in range(len(shares[0]))],
        [(f"depth {depth}", [f"{share:.3f}" for share in of_depth]) for depth, of_depth in enumerate(shares)],
    )
    body = (
        f'<div class="charts">{chart("Cross-entropy of each depth (nats)", "step", curves)}</div>\n'
        f"<h2>Held-out tokens: how often each guess is right</h2>\n{table}"
    )
    return html_page(title, body, facts)
