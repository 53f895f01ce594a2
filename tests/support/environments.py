"""The environments that people run programs in, and a folder in which a test runs a program in one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sharegroup.demo.processes import kill_coordinators
from tests.support.imports import ROOT, python_path
from tests.support.java_options import SPARK_ENVIRONMENT

PROXY = "http://127.0.0.1:9"
NO_HOME_S_USER = 54321
FORK = """
import os, runpy, sys
from sharegroup import Admin
from sharegroup.testing import broker

with broker() as address, Admin({"bootstrap.servers": address}) as admin:
    admin.list_groups()
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Python code that runs the program its arguments name in a child, after this process has used a broker."""


class Environment(NamedTuple):
    """``env``: variables; an empty one is unset. ``flags``: of Python. ``first``: the words before the program, of
    Python itself. ``before``: the words before Python; ``spark``: these where the program has Spark. ``beside``: files
    and folders beside the program. ``refusal``: a part of what is said, if the program is refused. ``is_silent``:
    whether nothing is written to standard error."""

    env: Mapping[str, str] = MappingProxyType({})
    flags: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    spark: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    refusal: str = ""
    is_silent: bool = False


def _shell(command: str) -> tuple[str, ...]:
    """The words before a command that is run after this one, in the same process."""
    return "sh", "-c", f'{command} && exec "$@"', "sh"


def _nobody(*, passwd: bool) -> tuple[str, ...]:
    """The words before a command that is run by a user with a number alone, on a disk on which it may write to the
    current folder alone. ``passwd``: the number has a line in /etc/passwd. The test needs root."""
    line = f"nobody:x:{NO_HOME_S_USER}:{NO_HOME_S_USER}::/:"
    named = f"echo {line} > tmp/passwd && mount --bind tmp/passwd /etc/passwd && " if passwd else ""
    mounts = f'mount --bind "$PWD" "$PWD" && {named}mount -o remount,bind,ro / && cd "$PWD"'
    user = f"unshare --user --map-user={NO_HOME_S_USER} --map-group={NO_HOME_S_USER}"
    own = "unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"
    return *own, "sh", "-c", f'{mounts} && exec {user} "$@"', "sh"


ENVIRONMENTS = {
    "proxy": Environment(
        env={
            name: PROXY
            for each in ("http", "https", "grpc", "all")
            for name in (f"{each}_proxy", f"{each}_PROXY".upper())
        }
    ),
    "fork": Environment(first=("-c", FORK)),
    "secrets.py and email.py": Environment(beside=("secrets.py", "email.py")),
    "queue.py": Environment(beside=("queue.py",), refusal="queue.py: a module of Python"),
    "folders with our names": Environment(beside=("coordinator/", "sharegroup/", "share_sink/")),
    "a package with our name": Environment(beside=("coordinator/__init__.py",), refusal="Rename that one, or take"),
    "no asserts": Environment(env={"PYTHONOPTIMIZE": "1"}),
    "no docstrings": Environment(env={"PYTHONOPTIMIZE": "2"}, refusal="Use -O or PYTHONOPTIMIZE=1."),
    "development mode": Environment(flags=("-X", "dev", "-W", "error::ResourceWarning"), is_silent=True),
    "no home": Environment(
        env={"HOME": "/", **dict.fromkeys(("SHAREGROUP_RUNTIME_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"), "")},
        before=_nobody(passwd=False),
        spark=_nobody(passwd=True),  # Java ends without a name for its user: Spark's own image adds the line, too
    ),
    "256 files": Environment(
        before=_shell("ulimit -n 256"),
        spark=_shell("ulimit -S -n 256"),  # Java opens more jars, and so raises its own limit
    ),
    "ASCII": Environment(env={"LANG": "xx_YY.UTF-8", "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    "safe path": Environment(env={"PYTHONSAFEPATH": "1"}),
}


class Place:
    """The folder of a program, in which all that it writes lies, also that of its coordinator."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self.folder, self.environment = folder, environment
        self.temporary = folder / "tmp"
        self.temporary.mkdir(mode=0o700)
        self.runtime = self.temporary / "run"
        for name in environment.beside:
            path = folder / name
            (path if name.endswith("/") else path.parent).mkdir(exist_ok=True)
            if not name.endswith("/"):
                path.write_text("API_KEY = 'x'\n")

    def __repr__(self) -> str:
        return f"<Place {self.folder}>"

    def run(self, *words: str, spark: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs Python with these words to its end, in this environment. ``spark``: the program has Spark."""
        given = self.environment
        env = {
            **os.environ,
            "PYTHONPATH": python_path(),
            "TMPDIR": str(self.temporary),
            "SHAREGROUP_RUNTIME_DIR": str(self.runtime),
            **given.env,
        }
        if spark:
            java = f"{SPARK_ENVIRONMENT['JDK_JAVA_OPTIONS']} -Djava.io.tmpdir={self.temporary}"
            env |= {"JDK_JAVA_OPTIONS": java, "SPARK_LOCAL_DIRS": str(self.temporary), "SPARK_LOCAL_IP": "127.0.0.1"}
        before = given.spark if spark and given.spark else given.before
        return subprocess.run(
            [*before, sys.executable, *given.flags, *given.first, *words],
            cwd=self.folder,
            env={name: value for name, value in env.items() if value},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1_500,
            check=False,
        )

    def check_end(self, done: subprocess.CompletedProcess[str], *, spark: bool = False) -> None:
        """Assert that a program came to its end, or was refused, as the environment has it."""
        said = done.stdout + done.stderr
        if self.environment.refusal:
            assert done.returncode != 0, said
            assert self.environment.refusal in said, said
        else:
            assert done.returncode == 0, said
            self.check(done, spark=spark)

    def check(self, done: subprocess.CompletedProcess[str], *, spark: bool = False) -> None:
        """Assert that no coordinator logged an error, but for a broker that is late on a busy machine, and that nothing
        was said where all is silent."""
        for log in self.temporary.rglob("coordinator-*.log"):
            lines = log.read_text(errors="replace").splitlines()
            errors = [line for line in lines if "Traceback" in line and "could be reached within" not in line]
            assert errors == [], errors
        if self.environment.is_silent:
            said = complaints(done, spark=spark)
            assert said == [], said

    def close(self) -> None:
        """End the coordinators of the program. Those of a user without a home have ended with their processes' tree."""
        kill_coordinators(self.runtime)


def complaints(done: subprocess.CompletedProcess[str], *, spark: bool) -> list[str]:
    """The lines of standard error, and of what pytest has to say of warnings. asyncio's development mode names what
    took a tenth of a second, on a busy machine anything. Where Spark is, only lines about our files count, without
    those about what py4j leaves to the collector: the line that is named is where the collector ran."""
    if spark:
        lines = (done.stdout + done.stderr).splitlines()
        return [line for line in lines if line.startswith(str(ROOT)) and "ResourceWarning" not in line]
    lines = done.stdout.partition("warnings summary")[2].splitlines() + done.stderr.splitlines()
    return [line for line in lines if not line.startswith("Executing <")]
