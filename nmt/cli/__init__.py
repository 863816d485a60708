"""One thin module per command.

torch's CPU allocator reads its setting when it first allocates, so it is set here, before any
command imports torch: large buffers on huge pages, which is over twice the speed for big products.
"""

import os

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
