"""Grouped bars as an SVG drawing, written without a plotting library, which the project does not depend on."""

from collections.abc import Mapping
from html import escape

COLORS = ("#1b6ca8", "#e08e2b", "#5b9a57", "#9a5fa6", "#b34a47", "#7a7a7a")
BAR, GAP, HEIGHT, LEFT, TOP, LEGEND = 22, 26, 220, 46, 54, 140

Groups = Mapping[str, Mapping[str, float]]
"""Shares by group and series."""


def bars(title: str, groups: Groups, aim: float | None = None) -> str:
    """Shares from 0 to 100 % (or up to the highest share), with a dashed line at the aim and a legend."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    top = max([1.0, *(value for group in groups.values() for value in group.values())])
    widths = [max(BAR * len(group), 6 * len(name)) for name, group in groups.items()]  # a letter takes 6 of these units
    width = max(LEFT + GAP + sum(GAP + w for w in widths), LEFT + LEGEND * len(series))
    bottom = TOP + HEIGHT

    def y(value: float) -> float:
        return bottom - HEIGHT * value / top

    parts = [_text(LEFT, 20, title, "font-weight='bold'")]
    for i, name in enumerate(series):
        x = LEFT + LEGEND * i
        parts += [
            f"<rect x='{x}' y='30' width='10' height='10' fill='{_color(series, name)}'/>",
            _text(x + 14, 39, name),
        ]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts += [_line(LEFT, width, y(tick), "#ddd"), _text(LEFT - 6, y(tick) + 4, f"{tick:.0%}", "text-anchor='end'")]
    middle = LEFT + GAP
    for group_width, (name, group) in zip(widths, groups.items(), strict=True):
        middle += group_width / 2
        parts.append(_text(middle, bottom + 18, name, "text-anchor='middle'"))
        for i, (by, value) in enumerate(group.items()):
            x = middle + BAR * (i - len(group) / 2)
            parts.append(
                f"<rect x='{x:g}' y='{y(value):.1f}' width='{BAR - 3}' height='{bottom - y(value):.1f}' "
                f"fill='{_color(series, by)}'><title>{escape(f'{name}, {by}: {value:.0%}')}</title></rect>"
            )
            parts.append(
                _text(x + BAR / 2 - 2, y(value) - 3, f"{100 * value:.0f}", "text-anchor='middle' font-size='9'")
            )
        middle += group_width / 2 + GAP
    if aim is not None:
        parts.append(_line(LEFT, width, y(aim), "#333", "stroke-dasharray='5 4'"))
    size = f"width='{width}' height='{bottom + 30}' viewBox='0 0 {width} {bottom + 30}'"
    style = "font-family='sans-serif' font-size='11'"
    background = "<rect width='100%' height='100%' fill='white'/>"
    return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' {size} {style}>", background, *parts, "</svg>"]) + "\n"


def _color(series: list[str], name: str) -> str:
    return COLORS[series.index(name) % len(COLORS)]


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f"<text x='{x:g}' y='{y:.1f}' {style}>{escape(text)}</text>"


def _line(left: float, right: float, y: float, color: str, style: str = "") -> str:
    return f"<line x1='{left}' x2='{right}' y1='{y:.1f}' y2='{y:.1f}' stroke='{color}' {style}/>"
