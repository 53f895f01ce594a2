"""How much memory this process uses, and how much of it the C library keeps though nobody uses it any more.

glibc gives freed memory back to the system where it lies at the end of an arena, and only if it is more than twice the
largest block that was mapped for itself and freed. So each arena keeps some, and there are up to eight arenas a core:
resident memory says little about leaks, bytes in use say all.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import NamedTuple

import psutil
import pyarrow as pa

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Info(ctypes.Structure):
    """The answer of mallinfo2(3): sums over all arenas, in bytes or blocks."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


class Memory(NamedTuple):
    """The memory and the open descriptors of a process."""

    in_use: int
    """Bytes that malloc and Arrow's pool have allocated and not freed."""
    objects: int
    """The number of blocks in Python's own allocator, which has the small objects and does not use malloc."""
    kept: int
    """Bytes that were freed and that the C library keeps. Some may not be resident."""
    resident: int
    """Bytes of the process in memory, including its libraries."""
    descriptors: int
    """The number of open files and sockets."""


def memory() -> Memory:
    """The memory of this process now, after a garbage collection. It needs glibc 2.33 or newer."""
    gc.collect()
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Info
    info = mallinfo2()
    return Memory(
        info.uordblks + info.hblkhd + pa.total_allocated_bytes(),
        sys.getallocatedblocks(),
        info.fordblks,
        psutil.Process().memory_info().rss,
        len(os.listdir("/proc/self/fd")),
    )
