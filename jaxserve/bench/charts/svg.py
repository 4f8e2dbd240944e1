"""Host: `chart`: an SVG chart of dots, bars or lines over two axes with round numbers.

Colors are CSS classes (`s1`, `s2` for the series), which the page defines for light and dark mode.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 26, 34, 40  # margins of the plot
MAX_TICKS = 6

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class DotSeries:
    """A dot per point."""

    points: Sequence[Point]
    name: str = ""

    def draw(self, place: "Scales", series: str) -> str:
        marks = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in map(place.at, self.points))
        return f'<path class="dots {series}" d="{marks}"/>'


@dataclass(frozen=True, slots=True)
class LineSeries:
    """A line through the points. shows_points: each point has a mark that shows its value under the pointer."""

    points: Sequence[Point]
    name: str = ""
    shows_points: bool = False

    def draw(self, place: "Scales", series: str) -> str:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place.at, self.points))
        marks = (
            f'<circle class="{series}" cx="{x:.1f}" cy="{y:.1f}" r="4">{_hint(f"{self.name} {number(value)}")}</circle>'
            for (_, value), (x, y) in zip(self.points, map(place.at, self.points), strict=True)
        )
        return f'<polyline class="line {series}" points="{path}"/>' + ("".join(marks) if self.shows_points else "")


@dataclass(frozen=True, slots=True)
class BarSeries:
    """A bar per count. edges: the bounds of the bars, one more than counts."""

    edges: Sequence[float]
    counts: Sequence[float]
    name: str = ""

    @property
    def points(self) -> list[Point]:
        return [(self.edges[0], 0.0), (self.edges[-1], max(self.counts))]

    def draw(self, place: "Scales", series: str) -> str:
        found: list[str] = []
        for low, high, count in zip(self.edges, self.edges[1:], self.counts, strict=False):
            if count:
                (x, y), (right, floor) = place.at((low, count)), place.at((high, 0))
                text = _hint(f"{number(low)} to {number(high)}: {number(count)}")
                size = f'width="{max(1, right - x - 1):.1f}" height="{floor - y:.1f}"'
                found.append(f'<rect class="{series}" x="{x:.1f}" y="{y:.1f}" {size}>{text}</rect>')
        return "".join(found)


Layer = DotSeries | LineSeries | BarSeries


@dataclass(frozen=True, slots=True)
class Scales:
    """Axes from `left` to `right` and from 0 to `top`, in the data's units."""

    left: float
    right: float
    top: float

    def at(self, point: Point) -> Point:
        """The position of a point in the drawing."""
        x = LEFT + (point[0] - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)
        return x, HEIGHT - BOTTOM - point[1] / self.top * (HEIGHT - TOP - BOTTOM)


def chart(
    title: str,
    x_label: str,
    layers: Sequence[Layer],
    *,
    x_names: Sequence[str] = (),
    marks: Iterable[tuple[float, str]] = (),
    counts: bool = False,
) -> str:
    """An HTML figure with the chart.

    x_names: names on the x axis instead of numbers; x is then an index. marks: vertical lines at values of x, each with
    a label. counts: y values are integers. No value is negative; the title names the unit of y.
    """
    points = [point for layer in layers for point in layer.points]
    if not points:
        return f'<figure><figcaption>{escape(title)}</figcaption><p class="none">no data</p></figure>'
    right, top = (max(point[axis] for point in points) or 1.0 for axis in (0, 1))
    named = list(enumerate(x_names)) or [(x, number(x)) for x in ticks(right)]
    ys = ticks(top, 1.0 if counts else 0.0)
    place = Scales(-0.5, len(x_names) - 0.5, ys[-1]) if x_names else Scales(0.0, named[-1][0], ys[-1])
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        *_axes(place, named, ys, x_label),
        *(layer.draw(place, f"s{i}") for i, layer in enumerate(layers, start=1)),
        *_marks(place, marks),
        *_legend([layer.name for layer in layers]),
        "</svg>",
    ]
    return f"<figure><figcaption>{escape(title)}</figcaption>{''.join(parts)}</figure>"


def ticks(most: float, least_step: float = 0.0) -> list[float]:
    """Round numbers from 0 to the first that is at least `most`, in steps of 1, 2 or 5 times a power of ten."""
    rough = max(most / MAX_TICKS, least_step)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(most / step - 1e-9) + 1)]


def number(value: float) -> str:
    """A short form of a number: 0.25, 12.5, 1,200."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _axes(place: Scales, xs: Sequence[tuple[float, str]], ys: Sequence[float], x_label: str) -> Iterable[str]:
    floor = HEIGHT - BOTTOM
    for value in ys:
        _, y = place.at((place.left, value))
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{number(value)}</text>'
    for value, name in xs:
        x, _ = place.at((value, 0))
        yield f'<text class="middle" x="{x:.1f}" y="{floor + 17}">{escape(name)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text class="middle" x="{middle}" y="{HEIGHT - 6}">{escape(x_label)}</text>'


def _marks(place: Scales, marks: Iterable[tuple[float, str]]) -> Iterable[str]:
    for i, (value, label) in enumerate(marks):
        x, _ = place.at((value, 0))
        side, shift = ("end", -4) if x > WIDTH - RIGHT - 90 else ("start", 4)
        yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text class="{side}" x="{x + shift:.1f}" y="{TOP + 2 + 14 * i}">{escape(label)}</text>'


def _legend(names: Sequence[str]) -> Iterable[str]:
    if len(names) > 1:
        for i, name in enumerate(names):
            x = LEFT + 150 * i
            yield f'<rect class="s{i + 1}" x="{x}" y="8" width="10" height="10" rx="2"/>'
            yield f'<text class="start" x="{x + 15}" y="17">{escape(name)}</text>'


def _hint(text: str) -> str:
    return f"<title>{escape(text.strip())}</title>"
