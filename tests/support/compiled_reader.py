"""The compiled reader in this clone. `make` builds it with the packages; a clone whose sources are newer, or which was
never set up, gets it here."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from filelock import FileLock

from tests.support.imports import ROOT

FOLDER = ROOT / "share_source" / "executor" / "native"
MODULE = FOLDER / "_drain.abi3.so"


def compile_reader(to: Path, *flags: str) -> None:
    """Compile the module into a file; the flags are the compiler's."""
    include = sysconfig.get_path("include")
    command = ["cc", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", *flags]
    command += ["-DPy_LIMITED_API=0x030A0000", f"-I{include}", FOLDER / "drain.c", "-o", to, "-lpthread", "-ldl"]
    subprocess.run(command, check=True)


def ensure_compiled() -> None:
    """Build the module in place unless it is there and newer than its sources."""
    with FileLock(ROOT / ".build" / "compiled-reader.lock"):
        sources = max(path.stat().st_mtime for path in FOLDER.glob("*.[ch]"))
        if not MODULE.exists() or MODULE.stat().st_mtime < sources:
            made = MODULE.with_suffix(".new")
            compile_reader(made)
            made.rename(MODULE)
