"""The figures of a report: learning curves, as SVG in the colors of the page.

matplotlib draws with fixed colors. They become CSS variables, so one drawing fits a light and a
dark page and paper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from nmt.apps.plot.curves import Curve
from nmt.apps.plot.figures import COLORS, metric_label, set_log_scale
from nmt.apps.report.runs import ReportedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2328", "#59636e", "#d1d9e0"
SERIES = COLORS[:6]  # as CSS variables --series-1 to --series-6
STYLES = ["-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5))]  # also told apart in grey
MARKERS = ["o", "s", "^", "D", "v", "P"]
SIZE = (3.9, 2.5)  # inches of a panel
# fixed, so that panels align; a layout that matplotlib computes takes twice the time to draw
MARGINS = {"left": 0.17, "right": 0.965, "top": 0.965, "bottom": 0.17}
WIDE = 10  # a logarithmic axis if the values of a perplexity differ by this factor
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    **{color.lower(): f"var(--series-{i})" for i, color in enumerate(SERIES, 1)},
}


@dataclass(frozen=True)
class Panel:
    """A figure of the page."""

    title: str  # above the figure
    svg: Markup  # without fixed size
    about: str  # what it shows, for those who cannot see it
    closed: bool = False  # whether it is shown on request only


@dataclass(frozen=True)
class _Plot:
    title: str
    unit: str
    train: str | None = None  # name of a logged value
    dev: str | None = None
    logarithmic: bool = False
    from_zero: bool = False
    closed: bool = False
    transform_dev: Callable[[np.ndarray], np.ndarray] = field(default=lambda values: values)


def learning_curves(runs: Sequence[ReportedRun]) -> list[Panel]:
    """Draw the learning curves of some runs over updates: a panel per quantity."""
    scores = dict.fromkeys(
        name
        for run in runs
        for name in [*run.recipe.score.metrics, "tokenized_bleu", "word_ppl"]
        if name in run.metrics.last("dev")
    )
    plots = [
        *(_Plot(f"Dev {short_label(name)}", _unit(name), dev=name) for name in scores),
        _Plot("Perplexity", "Perplexity", "ppl", "ppl", logarithmic=True),
        # the log has exp(loss) of dev
        _Plot(
            "Label-smoothed loss",
            "Nats per token",
            "loss",
            "smoothed_ppl",
            closed=True,
            transform_dev=np.log,
        ),
        _Plot("Learning rate", "Learning rate", "lr", from_zero=True, closed=True),
        _Plot(
            "Gradient norm before clipping", "L2 norm", "grad_norm", logarithmic=True, closed=True
        ),
        _Plot(
            "Speed", "Target tokens per second", "tokens_per_second", from_zero=True, closed=True
        ),
    ]
    panels = [_curves(plot, runs) for plot in plots]
    return [panel for panel in panels if panel is not None]


def _unit(metric: str) -> str:
    return "Perplexity" if metric.endswith("ppl") else f"{short_label(metric)} (0 to 100)"


def short_label(metric: str) -> str:
    """Return the name of a metric without the program that it is compatible with."""
    return metric_label(metric).partition(" (")[0]


def _curves(plot: _Plot, runs: Sequence[ReportedRun]) -> Panel | None:
    lines: list[tuple[Curve, dict[str, Any]]] = []  # with what decides how axes.plot draws it
    both = plot.train is not None and plot.dev is not None
    for number, run in enumerate(runs):
        color, style = run_style(number)
        look: dict[str, Any] = {"color": color, "linestyle": style}
        if plot.train is not None:
            train = {**look, "label": "train", "linewidth": 1.0}
            lines.append((run.metrics.curve("train", plot.train), train))
        if plot.dev is not None:
            curve = run.metrics.curve("dev", plot.dev)
            if both and len(runs) == 1:
                look["color"] = SERIES[1]
            look |= {"label": "dev", "linewidth": 1.4, "markersize": 3.5}
            look["marker"] = MARKERS[number % len(MARKERS)]
            lines.append((Curve(curve.updates, plot.transform_dev(curve.values)), look))
    lines = [line for line in lines if np.isfinite(line[0].values).any()]
    if not lines:
        return None
    figure, axes = _axes()
    for curve, look in lines:
        axes.plot(curve.updates, curve.values, **look)
    if both and len(runs) == 1:
        axes.legend(loc="best", fontsize=8, labelcolor=INK)
    values = np.concatenate([curve.values for curve, _ in lines])
    values = values[np.isfinite(values) & (values > 0)]
    if plot.logarithmic and len(values) and values.max() > WIDE * values.min():
        set_log_scale(axes)
        unit_y = f"{plot.unit} (log scale)"
    else:
        unit_y = plot.unit
        axes.yaxis.set_major_formatter("{x:,.5g}")
    bottom, _ = axes.get_ylim()
    if plot.from_zero or bottom < 0:  # no value is negative, only a margin
        axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.set_xlabel("Update")
    axes.set_ylabel(unit_y)
    about = f"{plot.title}, {unit_y}, over updates, for {', '.join(r.label for r in runs)}"
    return Panel(plot.title, to_svg(figure, plot.title), about, plot.closed)


def run_style(number: int) -> tuple[str, object]:
    """Return the color and the line style of the n-th run."""
    return SERIES[number % len(SERIES)], STYLES[number % len(STYLES)]


def key(number: int) -> Markup:
    """Return the line of a run in the key above the curves."""
    color, style = run_style(number)
    dashes = "" if style == "-" else " ".join(f"{1.4 * x:g}" for x in style[1])  # type: ignore[index]
    return Markup(
        '<svg class="key" viewBox="0 0 30 10" width="30" height="10" aria-hidden="true">'
        '<line x1="1" y1="5" x2="29" y2="5" style="stroke:{}" '
        'stroke-dasharray="{}"/></svg>'
    ).format(_VARIABLES[color.lower()], dashes)


def to_svg(figure: Figure, name: str) -> Markup:
    """Render a figure for a page: no fixed size or colors, and ids that begin with its name."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    for part in (r"<metadata>.*?</metadata>", r'<style type="text/css">.*?</style>', r"<!--.*?-->"):
        svg = re.sub(part, "", svg, flags=re.DOTALL)
    for size in ("width", "height"):
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"| version="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r"font-family: [^;\"]*;?|font: ([\d.]+px)[^;\"]*", _font_size, svg)
    prefix = re.sub(r"\W+", "-", name).lower()
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    return Markup(svg.strip())


def _font_size(match: re.Match[str]) -> str:
    return f"font-size: {match[1]}" if match[1] else ""


def _axes() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE)
    figure.subplots_adjust(**MARGINS)
    axes = figure.subplots()
    for spine in axes.spines.values():
        spine.set_color(GRID)
    axes.tick_params(which="both", color=GRID, labelcolor=MUTED, labelsize=8)
    axes.xaxis.label.set_color(MUTED)
    axes.yaxis.label.set_color(MUTED)
    axes.xaxis.label.set_fontsize(8.5)
    axes.yaxis.label.set_fontsize(8.5)
    axes.grid(color=GRID, linewidth=0.6)
    return figure, axes
