"""Charts as SVG text: coloured by the page's style, readable without colour and without sight.

Each chart has a title and a description for screen readers; series differ in dash and marker as
well as in colour (Okabe and Ito's palette, set in the page's style). Charts are as wide as a
phone, so that their letters stay legible there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from markupsafe import Markup

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 12, 34
LETTER = 6.4
"""Mean width of a letter at the charts' font size."""
SPARSE = 15
"""The most points of a series that is drawn with markers."""


@dataclass(frozen=True)
class Series:
    """A line. ``look`` picks colour and dash; ``faint`` is for raw values below their mean."""

    name: str
    points: Sequence[tuple[float, float]]
    look: int
    faint: bool = False


@dataclass(frozen=True)
class Interval:
    """A mean with its interval."""

    name: str
    mean: float
    low: float
    high: float
    look: int


class Charts:
    """Draws the charts of one page; ids on it are unique."""

    def __init__(self) -> None:
        self._ids = count(1)

    def lines(self, title: str, series: Sequence[Series], x_label: str = "step") -> Markup:
        """Curves over a common axis. The vertical axis starts at 0 unless a value is below."""
        shown = [one for one in series if one.points]
        xs = [x for one in shown for x, _ in one.points]
        ys = [y for one in shown for _, y in one.points]
        across = ticks(min(xs), max(xs), 5)
        up = ticks(min(0.0, *ys), max(ys) or 1.0, 4)
        names = [one for one in shown if not one.faint]
        legend, legend_height = _legend([(one.name, one.look) for one in names])
        top = TOP + legend_height
        place_x = _scale(across[0], across[-1], LEFT, WIDTH - RIGHT)
        place_y = _scale(up[0], up[-1], HEIGHT + legend_height - BOTTOM, top)
        parts = [legend, _grid(across, up, place_x, place_y)]
        for one in shown:
            path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in one.points)
            kind = "faint" if one.faint else "line"
            line = Markup('<polyline class="{} c{}" points="{}"/>')
            parts.append(line.format(kind, one.look, path))
            if len(one.points) <= SPARSE and not one.faint:
                parts += [_marker(place_x(x), place_y(y), one.look) for x, y in one.points]
        bottom = HEIGHT + legend_height
        parts.append(_text(WIDTH - RIGHT, bottom - 3, x_label, "end"))
        ends = "; ".join(
            f"{one.name} from {number(one.points[0][1])} to {number(one.points[-1][1])}"
            for one in names
        )
        return self._svg(title, ends, bottom, parts)

    def intervals(self, title: str, groups: Mapping[str, Sequence[Interval]]) -> Markup:
        """A dot with its interval for each member of each group, on an axis from 0 to 1 or more."""
        every = [one for group in groups.values() for one in group]
        axis = ticks(
            min(0.0, *(one.low for one in every)), max(1.0, *(one.high for one in every)), 5
        )
        looks = {one.name: one.look for one in every}
        legend, y = _legend(list(looks.items()))
        y += TOP
        left = max(len(label) for label in groups) * LETTER + 8
        place = _scale(axis[0], axis[-1], left, WIDTH - RIGHT - 8)
        parts = [legend]
        top = y
        for label, group in groups.items():
            parts.append(_text(left - 8, y + 7 * len(group) + 4, label, "end"))
            for one in group:
                y += 14
                line = '<line class="whisker c{}" x1="{:.1f}" x2="{:.1f}" y1="{y}" y2="{y}"/>'
                ends = place(one.low), place(one.high)
                parts.append(Markup(line).format(one.look, *ends, y=y))
                parts.append(_marker(place(one.mean), y, one.look))
            y += 12
        for tick in axis:
            line = '<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{}" y2="{}"/>'
            parts.insert(0, Markup(line).format(top, y, x=place(tick)))  # below everything
            parts.append(_text(place(tick), y + 14, number(tick), "middle"))
        said = "; ".join(
            f"{label}: " + ", ".join(
                f"{one.name} {one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in group
            )
            for label, group in groups.items()
        )  # fmt: skip
        return self._svg(title, said, y + 20, parts)

    def grouped(self, title: str, groups: Mapping[str, Sequence[tuple[str, float, int]]]) -> Markup:
        """Bars by group: (name, value, look), on an axis from 0 to 1 or more."""
        every = [one for group in groups.values() for one in group]
        axis = ticks(0.0, max(1.0, *(value for _, value, _ in every)), 4)
        legend, legend_height = _legend(list({name: look for name, _, look in every}.items()))
        left = max(len(label) for label in groups) * LETTER + 8
        place = _scale(axis[0], axis[-1], left, WIDTH - RIGHT - 34)
        parts = [legend]
        y = TOP + legend_height
        for label, group in groups.items():
            parts.append(_text(left - 8, y + 6.5 * len(group) + 4, label, "end"))
            for _, value, look in group:
                parts.append(_bar(left, y, place(value) - left, 11, f"fill c{look}"))
                parts.append(_text(place(value) + 4, y + 9.5, f"{value:.2f}", "start", "small"))
                y += 13
            y += 9
        said = "; ".join(
            f"{label}: " + ", ".join(f"{name} {value:.3f}" for name, value, _ in group)
            for label, group in groups.items()
        )
        return self._svg(title, said, y, parts)

    def counts(self, title: str, histogram: Sequence[tuple[str, float]], most: int = 8) -> Markup:
        """Horizontal bars; all rows after the first ``most`` become one."""
        rows = list(histogram[:most])
        if rest := histogram[most:]:
            rows.append((f"{len(rest)} others", sum(value for _, value in rest)))
        left = min(max(len(label) for label, _ in rows), 22) * LETTER + 8
        place = _scale(0, max(value for _, value in rows) or 1, left, WIDTH - RIGHT - 48)
        parts: list[Markup] = []
        y = 4
        for label, value in rows:
            short = label if len(label) <= 22 else f"{label[:21]}…"
            parts.append(_text(left - 8, y + 11, short, "end"))
            parts.append(_bar(left, y, place(value) - left, 14, "fill c1"))
            parts.append(_text(place(value) + 4, y + 11, number(value), "start", "small"))
            y += 19
        said = ", ".join(f"{label} {number(value)}" for label, value in rows)
        return self._svg(title, said, y + 2, parts)

    def flow(self, title: str, kept: int, dropped: int, most: int) -> Markup:
        """One bar: what a stage kept and dropped, beside the ``most`` that any stage saw."""
        height = 12
        place = _scale(0, most or 1, 0, WIDTH - 4)
        # A drop that is there is seen, however few they are.
        gone = max(place(dropped), 2.0) if dropped else 0.0
        parts = [
            _bar(0, 0, place(kept), height, "fill c1"),
            _bar(place(kept) + 1, 0, gone, height, "fill c2 hatched"),
        ]
        return self._svg(title, f"{kept} kept, {dropped} dropped", height, parts, "flow")

    def _svg(
        self, title: str, said: str, height: float, parts: Sequence[Markup], kind: str = "chart"
    ) -> Markup:
        at = next(self._ids)
        return Markup(
            '<svg class="{kind}" viewBox="0 0 {width} {height:.0f}" role="img" '
            'aria-labelledby="t{at} d{at}"><title id="t{at}">{title}</title>'
            '<desc id="d{at}">{said}</desc>{body}</svg>'
        ).format(kind=kind, width=WIDTH, height=height, at=at, title=title, said=said,
                 body=Markup("").join(parts))  # fmt: skip


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round numbers that span [low, high], about ``wanted`` steps of 1, 2 or 5 times a power."""
    if high <= low:
        high = low + 1.0
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * by for by in (1, 2, 5, 10) if raw <= power * by * (1 + 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def trailing_mean(points: Sequence[tuple[float, float]], over: int) -> list[tuple[float, float]]:
    """Each point's mean with up to ``over`` - 1 before it."""
    ys = [y for _, y in points]
    return [
        (x, sum(ys[max(0, at + 1 - over) : at + 1]) / min(at + 1, over))
        for at, (x, _) in enumerate(points)
    ]


def named(checkpoints: str) -> str:
    """``sft`` and ``rl`` as people write them, alone or among other words."""
    return " ".join({"sft": "SFT", "rl": "RL"}.get(word, word) for word in checkpoints.split(" "))


def number(value: float) -> str:
    """A number with at most four significant digits; whole numbers and thousands in full."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _grid(
    across: Sequence[float],
    up: Sequence[float],
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
) -> Markup:
    """Horizontal lines with their values, and the values of the horizontal axis."""
    parts: list[Markup] = []
    for tick in up:
        y = place_y(tick)
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>').format(
                LEFT, WIDTH - RIGHT, y=y
            )
        )
        parts.append(_text(LEFT - 5, y + 4, number(tick), "end"))
    for tick in across:
        anchor = "end" if tick == across[-1] else "middle"
        parts.append(_text(place_x(tick), place_y(up[0]) + 15, number(tick), anchor))
    return Markup("").join(parts)


def _legend(names: Sequence[tuple[str, int]]) -> tuple[Markup, int]:
    """Swatches with names, in as many rows as they need, and the height of these rows."""
    parts: list[Markup] = []
    x, y = 4.0, 12
    for name, look in names:
        needed = 34 + len(name) * LETTER
        if x > 4 and x + needed > WIDTH:
            x, y = 4.0, y + 16
        parts.append(
            Markup('<line class="line c{}" x1="{:.1f}" x2="{:.1f}" y1="{y}" y2="{y}"/>').format(
                look, x, x + 20, y=y - 4
            )
        )
        parts.append(_marker(x + 10, y - 4, look))
        parts.append(_text(x + 25, y, name, "start"))
        x += needed
    return Markup("").join(parts), y + 4 if names else 0


def _marker(x: float, y: float, look: int) -> Markup:
    """A circle, square, triangle or diamond."""
    shapes = (
        "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
        "M-3.2 -3.2h6.4v6.4h-6.4z",
        "M0 -4.2L4 3H-4z",
        "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
    )
    return Markup('<path class="fill c{}" transform="translate({:.1f} {:.1f})" d="{}"/>').format(
        look, x, y, shapes[look % len(shapes)]
    )


def _bar(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}"/>'
    ).format(kind, x, y, max(width, 0.0), height)  # fmt: skip


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}">{}</text>').format(
        x, y, anchor, kind, text
    )
