"""The papers' figures, drawn from run folders with matplotlib (the extra ``plots``).

A figure is a function from runs to a matplotlib Figure; a line in FIGURES names it for nmt-plot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.analysis.curves import Curve, RunMetrics, labels, late_mean, smooth
from nmt.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STACKS = ("encoder", "decoder")
# Okabe and Ito's colors: told apart by color-blind readers, and in grey
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
DEPTH_WINDOW = 9  # observations that a point of the figure over depth is the mean of
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "font.size": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "nmt",  # the same runs give the same file
}


def learning_curves(logs: Sequence[RunMetrics], of: str | None) -> Figure:
    """Dev score over updates, a line per run (T figure 1)."""
    metric = of or logs[0].recipe.score.select_by
    figure, ((axes,),) = _panels(1, 1)
    for label, color, log in _named(logs):
        measured = ", ".join(["ppl", "smoothed_ppl", *log.recipe.score.metrics, "tokenized_bleu"])
        fix = f"wait for its first validation; --of is one of {measured}"
        curve = _require(log.curve("dev", metric), log, f"{metric} of dev", fix)
        axes.plot(*curve, label=label, color=color, marker="o", markersize=3)
    _finish(axes, "update", f"dev {metric}", logarithmic=metric.endswith("ppl"))
    return figure


def gradient_norms(logs: Sequence[RunMetrics], of: str | None) -> Figure:
    """Global gradient norm over updates, before clipping, a panel per run (T figure 2)."""
    figure, grid = _panels(len(logs), 1, height=1.7)
    for (label, color, log), (axes,) in zip(_named(logs), grid, strict=True):
        curve = log.curve("observed", "grad_total")
        if not len(curve.updates):
            curve = log.curve("train", "grad_norm")  # at log lines alone
        _require(curve, log, "gradient norm", "train it first")
        axes.plot(*curve, color=color, linewidth=0.8, label=label)
        _finish(axes, "update" if log is logs[-1] else "", "gradient norm", logarithmic=True)
    _same_scale(grid)
    return figure


def gradients_by_depth(logs: Sequence[RunMetrics], of: str | None) -> Figure:
    """L1 norm of a matrix's gradient over updates, a line per layer (N figure 3)."""
    module = of or "ffn.fc2"
    figure, grid = _panels(len(logs), len(STACKS))
    for (label, _, log), row in zip(_named(logs), grid, strict=True):
        for stack, axes in zip(STACKS, row, strict=True):
            curves = log.by_layer("grad_l1", stack, module)
            seen = ", ".join(log.modules("grad_l1", stack)) or "none"
            _require(curves, log, f"grad_l1 of {module}; logged: {seen}", _observing("grad_l1"))
            for layer, curve in enumerate(curves):
                color = _shade(layer, len(curves))
                axes.plot(*smooth(curve, DEPTH_WINDOW), color=color, label=f"layer {layer}")
            axes.set_title(f"{label}, {stack}", fontsize=9)
            _finish(axes, "update", f"|gradient of {module}|₁", logarithmic=True)
    _same_scale(grid)
    _shared_legend(figure, grid)
    return figure


def gradient_changes(logs: Sequence[RunMetrics], of: str | None) -> Figure:
    """L1 norms of the later runs' gradients over those of the first, by depth (N figure 7)."""
    observer = of or "grad_l1"
    if len(logs) < 2:
        raise UserError("changes are against the first run", fix="name two runs or more")
    figure, grid = _panels(len(logs) - 1, len(STACKS))
    base = logs[0]
    colors = _colors_of_modules(logs, observer)
    for (label, _, log), row in zip(_named(logs)[1:], grid, strict=True):
        for stack, axes in zip(STACKS, row, strict=True):
            for module in base.modules(observer, stack):
                found = [run.by_layer(observer, stack, module) for run in (log, base)]
                _require(found[0], log, observer, _observing(observer))
                new, old = ([late_mean(curve) for curve in curves] for curves in found)
                # N: "normalized to control for different losses"
                losses = [late_mean(run.curve("train", "loss")) for run in (log, base)]
                ratios = [a / losses[0] / (b / losses[1]) for a, b in zip(new, old, strict=False)]
                _over_depth(axes, ratios, module, colors)
            axes.axhline(1, color="#888888", linewidth=0.8)
            axes.set_title(f"{label}, {stack}", fontsize=9)
            _finish(axes, "layer", f"{observer}, over the first run's")
    _same_scale(grid)
    _shared_legend(figure, grid)
    return figure


def gains_by_depth(logs: Sequence[RunMetrics], of: str | None) -> Figure:
    """The newest gains over depth, a line per norm of a layer (T figures 3 and 4; N figure 4)."""
    observer = of or "gains"
    figure, grid = _panels(len(logs), len(STACKS))
    colors = _colors_of_modules(logs, observer)
    for (label, _, log), row in zip(_named(logs), grid, strict=True):
        _require(log.modules(observer, "decoder"), log, observer, _observing(observer))
        for stack, axes in zip(STACKS, row, strict=True):
            for module in log.modules(observer, stack):
                curves = log.by_layer(observer, stack, module)
                _over_depth(axes, [curve.values[-1] for curve in curves], module, colors)
            axes.set_title(f"{label}, {stack}", fontsize=9)
            _finish(axes, "layer", observer)
    _shared_legend(figure, grid)
    return figure


def stability(logs: Sequence[RunMetrics], of: str | None) -> Figure:
    """Training loss over learning rate: where it explodes under a rising rate (N figure 5)."""
    figure, ((axes,),) = _panels(1, 1)
    for label, color, log in _named(logs):
        loss, rate = log.curve("train", "loss"), log.curve("train", "lr")
        _require(loss, log, "log line", "train it first")
        axes.plot(rate.values, loss.values, label=label, color=color)
        axes.plot(rate.values[-1], loss.values[-1], marker="x", color=color)
    _finish(axes, "learning rate", "smoothed loss per token")
    return figure


FIGURES: dict[str, Callable[[Sequence[RunMetrics], str | None], Figure]] = {
    "curves": learning_curves,
    "gradients": gradient_norms,
    "depth": gradients_by_depth,
    "changes": gradient_changes,
    "gains": gains_by_depth,
    "stability": stability,
}


def draw(name: str, logs: Sequence[RunMetrics], of: str | None, form: str) -> bytes:
    """A figure as the bytes of a file.

    Args:
        name: of FIGURES.
        logs: the runs, in the order of the legend.
        of: what is drawn where a figure leaves a choice.
        form: png, svg or pdf.

    Raises:
        UserError: matplotlib is missing, or a run has not logged what the figure shows.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UserError(
            f"matplotlib cannot be imported: {error}", fix="pip install matplotlib"
        ) from error
    data = BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context(STYLE):
        drawn = FIGURES[name](logs, of)
        drawn.savefig(data, format=form, dpi=160, metadata=undated.get(form))
    return data.getvalue()


def _observing(observer: str) -> str:
    return f"train with analysis.every=10 analysis.observe=[{observer}]"


def _panels(rows: int, columns: int, height: float = 2.6) -> tuple[Figure, np.ndarray]:
    from matplotlib.figure import Figure

    size = (7.0 if columns == 1 else 4.2 * columns, height * rows if rows > 1 else 3.6)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _named(logs: Sequence[RunMetrics]) -> list[tuple[str, str, RunMetrics]]:
    names = labels([log.path for log in logs])
    return [
        (name, COLORS[i % len(COLORS)], log)
        for i, (name, log) in enumerate(zip(names, logs, strict=True))
    ]


def _colors_of_modules(logs: Sequence[RunMetrics], observer: str) -> dict[str, str]:
    """One color per module in all panels; beyond the table's length they come again."""
    names = (
        name for log in logs for stack in reversed(STACKS) for name in log.modules(observer, stack)
    )
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(dict.fromkeys(names))}


def _over_depth(axes: Axes, values: Sequence[float], module: str, colors: dict[str, str]) -> None:
    layers = range(len(values))
    axes.plot(layers, values, color=colors[module], marker="o", markersize=4, label=module)
    axes.set_xticks(layers)


def _shared_legend(figure: Figure, grid: np.ndarray) -> None:
    """One legend beside all panels instead of one in each."""
    entries: dict[str, Any] = {}
    for axes in grid.flat:
        axes.get_legend().remove()
        handles, names = axes.get_legend_handles_labels()
        entries.update(zip(names, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside right upper", fontsize=7)


def _shade(layer: int, layers: int) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](layer / max(1, layers - 1) * 0.9)


def _finish(axes: Axes, across: str, up: str, logarithmic: bool = False) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(_log_tick)
        axes.yaxis.set_minor_formatter(_log_tick)
    axes.legend(fontsize=7)


def _log_tick(value: float, position: float) -> str:
    """200 rather than 2 x 10^2, and only 1, 2, 3 and 5 of each decade."""
    first = round(value / 10 ** math.floor(math.log10(value) + 1e-9))
    return f"{value:g}" if first in (1, 2, 3, 5) else ""


def _same_scale(grid: np.ndarray) -> None:
    low, high = zip(*(axes.get_ylim() for axes in grid.flat), strict=True)
    for axes in grid.flat:
        axes.set_ylim(min(low), max(high))


def _require(found: Any, log: RunMetrics, what: str, fix: str) -> Any:
    if not len(found.updates if isinstance(found, Curve) else found):
        raise UserError(f"this run has no {what}", at=str(log.path), fix=fix)
    return found
