"""Run nmt-train under torchrun, and let the second process fail or stop at an update."""

from __future__ import annotations

import os
import signal
import sys

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


if __name__ == "__main__":
    event, update, *arguments = sys.argv[1:]
    inject(event, int(update))
    sys.exit(main(arguments))
