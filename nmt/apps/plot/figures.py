"""Draw the papers' figures from run folders with matplotlib.

A figure is a function from runs to a matplotlib Figure. FIGURES names it for nmt-plot. Its second
argument is the value of ``--select``: what is drawn, if a figure can draw several quantities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.apps.plot.curves import Curve, RunMetrics, final_mean, running_mean, short_labels
from nmt.errors import UserError, install_fix
from nmt.runtime.files import replace_surrogates
from nmt.store.folder import RunFolder
from nmt.store.results import read_summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colors, which color-blind readers can distinguish, also in grey
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
DEPTH_WINDOW = 9  # observations averaged in each point of the figure of gradients by depth
OBSERVED_LABELS = {  # of axes
    "grad_l1": "L1 norm of the gradient",
    "grad_l2": "L2 norm of the gradient",
    "gains": "Gain (mean over the dimensions)",
    "head_scale": "HeadScale of a head",
    "res_scale": "ResScale (mean over the dimensions)",
}
PERPLEXITIES = {
    "ppl": "perplexity",
    "smoothed_ppl": "label-smoothed perplexity",
    "word_ppl": "perplexity per word",
}
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


def learning_curves(runs: Sequence[RunMetrics], selected: str | None) -> Figure:
    """Draw a dev score over updates, a line per run (T figure 1)."""
    metric = selected or runs[0].recipe.score.select_by
    figure, ((axes,),) = _panels(1, 1)
    for label, color, run in _labeled(runs):
        scores = [*run.recipe.score.metrics, "tokenized_bleu"] if run.recipe.translates else []
        logged = ", ".join(["ppl", "smoothed_ppl", *scores])
        curve = run.curve("dev", metric)
        fix = f"wait for the first validation, or --select one of {logged}"
        _require(len(curve.updates), run, f"{metric} of dev", fix)
        axes.plot(*curve, label=label, color=color, marker="o", markersize=3)
    label = f"Dev {metric_label(metric)}"
    _set_axes(axes, "Update", label, logarithmic=metric.endswith("ppl"))
    return figure


def gradient_norms(runs: Sequence[RunMetrics], selected: str | None) -> Figure:
    """Draw the global gradient norm before clipping over updates, a panel per run (T figure 2)."""
    figure, grid = _panels(len(runs), 1, height=1.7)
    for (label, color, run), (axes,) in zip(_labeled(runs), grid, strict=True):
        curve = run.curve("observed", "grad_total")
        if not len(curve.updates):
            curve = run.curve("train", "grad_norm")  # logged every train.log_every updates
        _require_log(curve, run, "gradient norm")
        axes.plot(*curve, color=color, linewidth=0.8, label=label)
        _set_axes(axes, "Update" if run is runs[-1] else "", "Gradient norm (L2)", logarithmic=True)
    _share_scale(grid)
    return figure


def gradients_by_depth(runs: Sequence[RunMetrics], selected: str | None) -> Figure:
    """Draw the L1 norm of a matrix's gradient over updates, a line per layer (N figure 3)."""
    from matplotlib import colormaps

    module = selected or "ffn.fc2"
    stacks = _stacks(runs)
    figure, grid = _panels(len(runs), len(stacks))
    for (label, _, run), row in zip(_labeled(runs), grid, strict=True):
        for stack, axes in zip(stacks, row, strict=True):
            curves = run.by_layer("grad_l1", stack, module)
            logged = ", ".join(run.modules("grad_l1", stack))
            fix = f"--select one of {logged}" if logged else _observe("grad_l1")
            _require(len(curves), run, f"grad_l1 of {module} in the {stack}", fix)
            for layer, curve in curves.items():
                color = colormaps["viridis"](layer / max(1, *curves) * 0.9)
                axes.plot(*running_mean(curve, DEPTH_WINDOW), color=color, label=f"layer {layer}")
            axes.set_title(f"{label}, {stack}", fontsize=9)
            _set_axes(axes, "Update", f"L1 norm of the gradient of {module}", logarithmic=True)
    _share_scale(grid)
    _share_legend(figure, grid)
    return figure


def gradient_changes(runs: Sequence[RunMetrics], selected: str | None) -> Figure:
    """Draw L1 norms of gradients relative to the first run's, by depth (N figure 7)."""
    observer = selected or "grad_l1"
    if len(runs) < 2:
        raise UserError("changes are relative to the first run", fix="name two runs or more")
    stacks = _stacks(runs)
    figure, grid = _panels(len(runs) - 1, len(stacks))
    for run in runs:
        _require(len(run.modules(observer, stacks[-1])), run, observer, _observe(observer))
        _require_log(run.curve("train", "loss"), run, "training loss")
    base = runs[0]
    base_loss = final_mean(base.curve("train", "loss"))
    colors = _module_colors(runs, observer)
    for (label, _, run), row in zip(_labeled(runs)[1:], grid, strict=True):
        # N: "normalized to control for different losses"
        loss = final_mean(run.curve("train", "loss"))
        for stack, axes in zip(stacks, row, strict=True):
            for module in base.modules(observer, stack):
                curves = run.by_layer(observer, stack, module)
                _require(len(curves), run, observer, _observe(observer))
                old = base.by_layer(observer, stack, module)
                ratios = {
                    i: final_mean(curves[i]) / loss / (final_mean(old[i]) / base_loss)
                    for i in curves.keys() & old.keys()
                }
                _plot_by_depth(axes, ratios, module, colors)
            axes.axhline(1, color="#888888", linewidth=0.8)
            axes.set_title(f"{label}, {stack}", fontsize=9)
            norm = OBSERVED_LABELS.get(observer, observer)
            _set_axes(axes, "Layer (0 = first)", f"{norm}, relative to the first run")
    _share_scale(grid)
    _share_legend(figure, grid)
    return figure


def gains_by_depth(runs: Sequence[RunMetrics], selected: str | None) -> Figure:
    """Draw the latest gains by depth, a line per norm (T figures 3 and 4; N figure 4)."""
    observer = selected or "gains"
    stacks = _stacks(runs)
    figure, grid = _panels(len(runs), len(stacks))
    colors = _module_colors(runs, observer)
    for (label, _, run), row in zip(_labeled(runs), grid, strict=True):
        _require(len(run.modules(observer, stacks[-1])), run, observer, _observe(observer))
        for stack, axes in zip(stacks, row, strict=True):
            for module in run.modules(observer, stack):
                curves = run.by_layer(observer, stack, module)
                latest = {i: curve.values[-1] for i, curve in curves.items()}
                _plot_by_depth(axes, latest, module, colors)
            axes.set_title(f"{label}, {stack}", fontsize=9)
            gain = OBSERVED_LABELS.get(observer, observer)
            _set_axes(axes, "Layer (0 = first)", gain)
    _share_legend(figure, grid)
    return figure


def stability(runs: Sequence[RunMetrics], selected: str | None) -> Figure:
    """Draw training loss over a rising learning rate, to see where it explodes (N figure 5)."""
    figure, ((axes,),) = _panels(1, 1)
    for label, color, run in _labeled(runs):
        loss, rate = run.curve("train", "loss"), run.curve("train", "lr")
        _require_log(loss, run, "training loss")
        axes.plot(rate.values, loss.values, label=label, color=color)
        axes.plot(rate.values[-1], loss.values[-1], marker="x", color=color)
    _set_axes(axes, "Learning rate", "Label-smoothed loss (nats per token)")
    return figure


FIGURES: dict[str, Callable[[Sequence[RunMetrics], str | None], Figure]] = {
    "curves": learning_curves,
    "gradients": gradient_norms,
    "depth": gradients_by_depth,
    "changes": gradient_changes,
    "gains": gains_by_depth,
    "stability": stability,
}


def draw(name: str, runs: Sequence[RunMetrics], selected: str | None, file_format: str) -> bytes:
    """Draw a figure of FIGURES as the bytes of a png, svg or pdf file.

    Args:
        selected: the quantity to draw; None = the figure's default.

    Raises:
        UserError: matplotlib is missing, the figure cannot show what is selected, or a run has not
            logged it.
    """
    matplotlib = require_matplotlib()
    data = BytesIO()
    without_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    if selected and name in ("gradients", "stability"):
        raise UserError(f"figure {name} has nothing to select", at="--select", fix="leave it out")
    if selected and name in ("changes", "gains") and selected not in OBSERVED_LABELS:
        raise UserError(
            f"{selected} is not one of {', '.join(OBSERVED_LABELS)}",
            at="--select",
            fix="choose one",
        )
    with matplotlib.rc_context(STYLE):
        figure = FIGURES[name](runs, selected)
        figure.savefig(data, format=file_format, dpi=160, metadata=without_date.get(file_format))
    return data.getvalue()


def require_matplotlib() -> ModuleType:
    """Import matplotlib, or say how to install it."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError(f"matplotlib cannot be imported: {error}", fix=install_fix()) from error
    return matplotlib


def metric_label(name: str) -> str:
    """Return the name of a logged metric as axes and tables show it: ``bleu`` -> BLEU.

    The metric of one of several sets, ``SET/bleu``, is ``BLEU of SET``.
    """
    from nmt.scoring.metrics import METRICS

    set_name, _, metric = name.rpartition("/")
    label = PERPLEXITIES.get(metric) or (METRICS[metric].label if metric in METRICS else metric)
    return f"{label} of {set_name}" if set_name else label


def _observe(observer: str) -> str:
    return f"train with analysis.every=10 analysis.observe=[{observer}]"


def _stacks(runs: Sequence[RunMetrics]) -> list[str]:
    """Return the stacks that the models of all runs have."""
    stacks = [s for s in runs[0].recipe.stacks if all(s in run.recipe.stacks for run in runs)]
    if not stacks:
        raise UserError(
            "these models have no stack of layers in common: one has only an encoder, one only a "
            "decoder",
            fix="draw their figures separately",
        )
    return stacks


def _require(count: int, run: RunMetrics, missing: str, fix: str) -> None:
    if not count:
        raise UserError(f"this run has no {missing}", at=str(run.path), fix=fix)


def _require_log(curve: Curve, run: RunMetrics, name: str) -> None:
    if len(curve.updates):
        return
    every = run.recipe.train.log_every
    if read_summary(RunFolder(run.path)):  # it has ended
        fix = "train again with a smaller train.log_every, such as train.log_every=1 out=PATH"
    else:
        fix = f"wait for update {every:,}, or continue the run with --resume if it has stopped"
    missing = f"{name} in its log: no update was logged, as train.log_every is {every:,}"
    _require(0, run, missing, fix)


def _panels(rows: int, columns: int, height: float = 2.6) -> tuple[Figure, np.ndarray]:
    from matplotlib.figure import Figure

    size = (7.0 if columns == 1 else 4.2 * columns, height * rows if rows > 1 else 3.6)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _labeled(runs: Sequence[RunMetrics]) -> list[tuple[str, str, RunMetrics]]:
    labels = short_labels([run.path for run in runs])
    return [
        (replace_surrogates(label), COLORS[i % len(COLORS)], run)
        for i, (label, run) in enumerate(zip(labels, runs, strict=True))
    ]


def _module_colors(runs: Sequence[RunMetrics], observer: str) -> dict[str, str]:
    """Return a color for each module, the same in all panels."""
    names = (
        name
        for run in runs
        for stack in reversed(run.recipe.stacks)
        for name in run.modules(observer, stack)
    )
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(dict.fromkeys(names))}


def _plot_by_depth(
    axes: Axes, values: Mapping[int, float], module: str, colors: dict[str, str]
) -> None:
    layers = sorted(values)
    heights = [values[layer] for layer in layers]
    axes.plot(layers, heights, color=colors[module], marker="o", markersize=4, label=module)
    axes.set_xticks(range(1 + max(layers, default=0)))


def _share_legend(figure: Figure, grid: np.ndarray) -> None:
    """Replace the legends of all panels by one next to them."""
    entries: dict[str, Any] = {}
    for axes in grid.flat:
        axes.get_legend().remove()
        handles, names = axes.get_legend_handles_labels()
        entries.update(zip(names, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside right upper", fontsize=7)


def _share_scale(grid: np.ndarray) -> None:
    low, high = zip(*(axes.get_ylim() for axes in grid.flat), strict=True)
    for axes in grid.flat:
        axes.set_ylim(min(low), max(high))


def _set_axes(axes: Axes, x_label: str, y_label: str, logarithmic: bool = False) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if logarithmic:
        set_log_scale(axes)
    axes.legend(fontsize=7)


def set_log_scale(axes: Axes) -> None:
    """Make the y axis logarithmic, with ticks as 200 instead of 2 x 10^2."""

    def tick(value: float, position: float) -> str:
        first_digit = round(value / 10 ** math.floor(math.log10(value) + 1e-9))
        return f"{value:g}" if first_digit in (1, 2, 3, 5) else ""

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(tick)
    axes.yaxis.set_minor_formatter(tick)
