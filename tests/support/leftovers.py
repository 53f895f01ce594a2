"""What a broker in memory could leave behind: processes and files, by a runtime and a temporary folder of its own."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from tests.support.coordinator_process import has_ended


class OwnFolders:
    """Folders that a test's processes get by their environment, by which the processes are found again."""

    def __init__(self, folder: Path) -> None:
        self.runtime, self.temporary = folder / "run", folder / "tmp"
        for each in (self.runtime, self.temporary):
            each.mkdir(mode=0o700)
        self.environment = {"SHAREGROUP_RUNTIME_DIR": str(self.runtime), "TMPDIR": str(self.temporary)}

    def __repr__(self) -> str:
        return f"<OwnFolders {self.runtime.parent}>"

    def processes(self) -> list[str]:
        """The command lines of the other processes of this test's environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_ours = process.environ().get("SHAREGROUP_RUNTIME_DIR") == str(self.runtime)
                if is_ours and process.pid != os.getpid() and not has_ended(process):
                    found.append(" ".join(process.cmdline()))
        return found

    def files(self) -> list[str]:
        """What lies in the folders; the empty folder of tasks' notes is Spark's side's own."""
        paths = [path for folder in (self.runtime, self.temporary) for path in folder.rglob("*")]
        return [str(path) for path in paths if path != self.runtime / "tasks"]

    @property
    def are_left(self) -> bool:
        """Whether a process or a file is there."""
        return bool(self.processes() or self.files())
