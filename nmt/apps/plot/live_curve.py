"""Draw the curve of a training in a notebook while it runs."""

from __future__ import annotations

import html
import importlib.util
import sys
import time
from base64 import b64encode
from io import BytesIO
from typing import Any

from nmt.apps.plot.figures import COLORS, STYLE
from nmt.store.results import as_score
from nmt.training.progress import LiveLine, LiveView, Progress

SHARE = 0.02  # of the time between validations may be spent on drawing


def live_view() -> LiveView:
    """Return a curve in a notebook that can draw, otherwise a line, which only a terminal shows."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    in_notebook = hasattr(shell, "kernel")
    return LiveCurve() if in_notebook and importlib.util.find_spec("matplotlib") else LiveLine()


class LiveCurve(LiveView):
    """Draw training loss and dev score over updates below a cell, with the status above them.

    They are drawn again after each validation. In between, a log line draws them too, unless that
    would take more than SHARE of the time.
    """

    shown = True

    def __init__(self) -> None:
        self._losses: list[tuple[int, float]] = []
        self._scores: list[tuple[int, float]] = []
        self._next = 0.0
        self._output: Any = None
        self._progress: Progress | None = None

    def begin(self, progress: Progress) -> None:
        """Draw the dev scores so far: none in a new run."""
        from IPython.display import DisplayHandle

        self._progress, self._output = progress, DisplayHandle()
        metric = progress.recipe.score.select_by
        self._scores = [(update, as_score(metric, s)) for update, s in progress.state.history]
        self._output.display(self._data(), raw=True)

    def record(self, values: dict[str, Any]) -> None:
        """Add a point, and draw if it is time."""
        assert self._progress is not None
        began = time.monotonic()
        if values["kind"] == "dev":
            metric = self._progress.recipe.score.select_by
            self._scores.append((values["update"], values[metric]))
        else:
            self._losses.append((values["update"], values["loss"]))
            if began < self._next:
                return
        self._output.update(self._data(), raw=True)
        now = time.monotonic()
        self._next = now + (now - began) / SHARE

    def end(self) -> None:
        """Draw the complete curve, which stays in the notebook."""
        if self._output is not None:
            self._output.update(self._data(), raw=True)
            self._output = None

    def _data(self) -> dict[str, str]:
        assert self._progress is not None
        status = self._progress.status()
        image = b64encode(self._draw(self._progress.recipe.score.select_by)).decode("ascii")
        alt = f"Training loss and dev score over updates: {status}"
        return {
            "text/plain": status,
            "text/html": f"<pre>{html.escape(status)}</pre>"
            f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{image}">',
        }

    def _draw(self, metric: str) -> bytes:
        import matplotlib
        from matplotlib.figure import Figure

        data = BytesIO()
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(8.4, 2.8), layout="constrained")
            panels = figure.subplots(1, 2)
            curves = (("training loss per token", self._losses, ""), ("", self._scores, "o"))
            for axes, (label, points, marker) in zip(panels, curves, strict=True):
                x, y = zip(*points, strict=True) if points else ((), ())
                axes.plot(x, y, color=COLORS[0], marker=marker, markersize=3)
                axes.set_xlabel("update")
                axes.set_ylabel(label or f"{metric} on dev")
            figure.savefig(data, format="png", dpi=100)
        return data.getvalue()
