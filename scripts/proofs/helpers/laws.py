"""What is measured, what was found, and its bounds, as the lines of a table."""

Law = tuple[str, float, float | None, float | None]
"""What is measured, what was found, the least and the most that is allowed."""


def lines_of(title: str, laws: list[Law]) -> list[str]:
    lines = [f"| {title} | measured | bound |", "|---|---|---|"]
    return lines + [f"| {law} | {_shown(found)} | {_bound(least, most)} |" for law, found, least, most in laws]


def broken(laws: list[Law]) -> list[str]:
    """The names of the laws that do not hold."""
    is_below = [least is not None and not found >= least for _, found, least, _ in laws]
    is_above = [most is not None and not found <= most for _, found, _, most in laws]
    return [law[0] for law, *bad in zip(laws, is_below, is_above, strict=True) if any(bad)]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _bound(least: float | None, most: float | None) -> str:
    if least is not None and least == most:
        return _shown(least)
    ends = [
        f"at least {_shown(least)}" if least is not None else "",
        f"at most {_shown(most)}" if most is not None else "",
    ]
    return ", ".join(filter(None, ends)) or "–"
