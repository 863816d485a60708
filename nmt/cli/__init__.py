"""The commands, one thin module each.

Importing this package configures glibc's allocator, before any command imports torch. In the
process of a command, Ctrl-C during the following imports ends it without a traceback; later,
``run_command`` handles Ctrl-C.
"""

import os
import signal
import sys
from types import FrameType

from nmt.runtime.memory import keep_freed_memory


def leave_at_once(number: int, frame: FrameType | None) -> None:
    """End the process like an interrupted command, before it has started to work."""
    os.write(2, b"interrupted\n")
    os._exit(130)


# "-m" while Python looks for the module of ``python -m nmt.cli.train``
if sys.argv and (sys.argv[0] == "-m" or os.path.basename(sys.argv[0]).startswith("nmt")):
    signal.signal(signal.SIGINT, leave_at_once)
keep_freed_memory()
