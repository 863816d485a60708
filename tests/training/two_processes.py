"""Run nmt-train under torchrun, and let the second process fail or stop at an update."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from pathlib import Path

from nmt.cli.train import main
from nmt.training.trainer import Trainer


def inject(event: str, when: int) -> None:
    update = Trainer.update

    def method(self, *arguments):
        update(self, *arguments)
        if self.state.update == when and os.environ["RANK"] == "1":
            if event == "fails":
                raise MemoryError
            signal.raise_signal(signal.SIGTERM)

    Trainer.update = method  # type: ignore[method-assign]


def report_end(run: Path) -> None:
    """Print whether the other process has finished when this one ends."""
    if os.environ["RANK"] == "1":
        written = (run / "report.html").exists()
        print(f"the second process ends after the report: {written}", file=sys.stderr)


if __name__ == "__main__":
    event, update, *arguments = sys.argv[1:]
    inject(event, int(update))
    run = next(word.removeprefix("out=") for word in arguments if word.startswith("out="))
    atexit.register(report_end, Path(run))
    sys.exit(main(arguments))
