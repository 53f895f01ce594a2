"""Recognizes a full disk among other file errors: the remedy is to free space, not to restore a file."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from coordinator.protocol.errors import DiskFull

LEAST_FREE_BYTES = 256 * 1024
"""An I/O error of SQLite counts as a full disk below this many free bytes. SQLite grows its files by up to 64 KiB at
once, and for one of these files reports an I/O error if the disk is full (seen)."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def disk_full(path: Path, error: Exception) -> DiskFull | None:
    """Returns the named error for an error of the operating system or of SQLite that says that the file's disk has no
    space left; else None."""
    reason = str(error)
    if isinstance(error, OSError):
        is_full = error.errno in _NO_SPACE
    else:
        is_full = "disk is full" in reason or ("disk I/O error" in reason and _free_bytes(path) < LEAST_FREE_BYTES)
    return DiskFull(path=path, reason=reason) if is_full else None


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path.parent).free
