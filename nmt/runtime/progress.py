"""Show on a terminal how far a step of a command is; elsewhere show nothing.

A bar is drawn on standard error and removed when the step ends.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

REDRAW = 1.0  # seconds
ELAPSED = "{desc}  {elapsed}"  # of a step without parts
SHARE = "{l_bar}{bar}| {elapsed}<{remaining}"  # of parts without a name

Item = TypeVar("Item")


class TerminalBar(tqdm):
    """A progress bar that is shown only on a terminal, even one of unknown size.

    Args:
        show: False = show nothing, also on a terminal.
        leave: keep the bar when it is complete.
        status: returns the text of ``{status}`` in ``bar_format``.
        options: of tqdm.
    """

    def __init__(
        self,
        show: bool = True,
        leave: bool = False,
        status: Callable[[], str] = lambda: "",
        **options: Any,
    ) -> None:
        self._status = status
        super().__init__(
            **options,
            file=sys.stderr,
            dynamic_ncols=True,
            leave=leave,
            disable=None if show else True,  # None: without a terminal
        )
        # tqdm takes the wall clock: a bar would stand still for as long as it is set back
        self._time, self.start_t = time.monotonic, time.monotonic()
        self.last_print_t = self.start_t
        if not self.disable:
            self._assume_size()
            if not self.delay:
                self.refresh()

    @property
    def format_dict(self) -> dict[str, Any]:
        """Return the values of the format; tqdm asks for them only when it draws the line."""
        values = super().format_dict
        self._assume_size()
        return {**values, "ncols": self.ncols, "status": self._status()}

    def _assume_size(self) -> None:
        """Assume 80 columns if the terminal does not know its size, as in some containers."""
        if (self.nrows or 0) < 2:  # tqdm would draw nothing
            self.ncols, self.nrows = 80, 24


# tqdm's own lock is shared with forked processes: one that is killed could hold it forever
TerminalBar.set_lock(threading.RLock())


@contextlib.contextmanager
def progress_bar(
    action: str,
    unit: str = "",
    total: int | None = None,
    show: bool = True,
    slow: bool = False,
    delay: float = 0.0,
) -> Iterator[TerminalBar]:
    """Yield a bar; its ``update()`` counts a part of the step.

    Args:
        action: what is done.
        unit: plural of a part, such as ``pairs``; empty = parts have no name, so only the share of
            ``total`` is shown, or the time that the step has taken.
        total: number of parts, which gives the time left; None = unknown.
        show: False = show nothing, also on a terminal.
        slow: a part may take seconds. A thread then redraws the time every second, so nothing may
            be forked meanwhile.
        delay: seconds before the bar appears, so that it does not flash in a short step.
    """
    bar_format = None if unit else SHARE if total else ELAPSED
    options: dict[str, Any] = {"total": total, "bar_format": bar_format, "delay": delay}
    with TerminalBar(show, desc=action, unit=f" {unit}", **options) as bar:
        if not slow or bar.disable:
            yield bar
            return
        ended = threading.Event()

        def redraw() -> None:
            while not ended.wait(bar.delay or REDRAW):
                bar.delay = 0
                bar.refresh()

        thread = threading.Thread(target=redraw, daemon=True)
        thread.start()
        try:
            yield bar
        finally:
            ended.set()
            thread.join()


def counted(
    items: Iterable[Item],
    action: str,
    unit: str,
    total: int | None = None,
    show: bool = True,
    slow: bool = False,
) -> Generator[Item, None, None]:
    """Yield items, and show how many have been taken; see ``progress_bar``."""
    with progress_bar(action, unit, total, show, slow) as bar:
        for item in items:
            yield item
            bar.update()
