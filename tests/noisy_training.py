"""Stands in for nmt.apps.verify_resume as a program: its checkpoints have one tensor at random."""

from __future__ import annotations

import sys
from random import SystemRandom
from typing import Any

from nmt.apps.verify_resume import main
from nmt.training import trainer

NOISY = "out_bias/exp_avg"
save_checkpoint = trainer.save_checkpoint


def save_noisy(run: Any, state: Any, model: Any, optimizer: Any, keep: int) -> Any:
    noisy = optimizer[NOISY] + SystemRandom().random()
    return save_checkpoint(run, state, model, {**optimizer, NOISY: noisy}, keep)


if __name__ == "__main__":
    trainer.save_checkpoint = save_noisy
    sys.exit(main(sys.argv[1:]))
