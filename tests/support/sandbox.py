"""A sandbox as a serverless offer may have one: system calls that the kernel refuses, for a Python process and all
that it starts. Linux alone has such a filter (seccomp)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

from tests.support.imports import ROOT

VARIABLE = "SHAREGROUP_TESTS_FORBID"
"""This environment variable lists the calls that are refused in processes whose PYTHONPATH has `sandbox_folder`."""

NUMBERS = {
    "x86_64": {"execve": 59, "execveat": 322, "listen": 50},
    "aarch64": {"execve": 221, "execveat": 281, "listen": 201},
}
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD_NUMBER, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_REFUSE, _ALLOW = 0x0005_0000, 0x7FFF_0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbid(calls: Iterable[str]) -> None:
    """Have the kernel refuse these system calls with EPERM, in this process and in all that it starts."""
    numbers = NUMBERS[platform.machine()]
    steps = [struct.pack("HBBI", _LOAD_NUMBER, 0, 0, 0)]
    for call in calls:
        steps.append(struct.pack("HBBI", _JUMP_IF_EQUAL, 0, 1, numbers[call]))
        steps.append(struct.pack("HBBI", _RETURN, 0, 0, _REFUSE | errno.EPERM))
    steps.append(struct.pack("HBBI", _RETURN, 0, 0, _ALLOW))
    filters = ctypes.create_string_buffer(b"".join(steps))
    program = _Program(len(steps), ctypes.addressof(filters))
    library = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0), (_SECCOMP, _FILTER, ctypes.byref(program))):
        if library.prctl(*arguments, 0, 0):
            raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")


def sandbox_folder(folder: Path) -> Path:
    """Make a folder for PYTHONPATH: a Python that has it there begins by forbidding the calls of VARIABLE."""
    folder.mkdir()
    lines = ["import os, sys", f"sys.path.append({str(ROOT)!r})", "from tests.support import sandbox"]
    (folder / "sitecustomize.py").write_text("\n".join([*lines, "sandbox.forbid_named()"]) + "\n")
    return folder


def forbid_named() -> None:
    """Forbid the calls of VARIABLE."""
    if named := os.environ.get(VARIABLE):
        forbid(named.split(","))
