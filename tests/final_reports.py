"""Whether runs in this process end with their report, as those of users do."""

from __future__ import annotations

import pytest

from nmt.apps.report import final

_write = final.write_final_report


def leave_out() -> None:
    """Let runs end without a report from now on."""
    final.write_final_report = lambda run, log: None


def write(patch: pytest.MonkeyPatch) -> None:
    """Let runs end with their report until the patch is undone."""
    patch.setattr(final, "write_final_report", _write)
