"""The commands, one thin module each.

Importing this package configures glibc's allocator, before any command imports torch.
"""

from nmt.runtime.allocation import keep_freed_memory

keep_freed_memory()
