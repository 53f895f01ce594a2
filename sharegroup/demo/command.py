"""``sharegroup demo``: runs the story; exit status 0 if all its checks passed."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys

import click

from coordinator.protocol.errors import ShareGroupError
from sharegroup.demo.processes import ENDING, DemoFailed

_MINIMUM_JAVA = 17
_INTERRUPTED = 130
_TITLE = "sharegroup: Kafka share groups for Spark Structured Streaming"
_SUMMARY = (
    "Two Spark queries process one partition together; each order goes to one of them. One query\n"
    "is killed in the middle of a batch and restarts. Broken orders become dead letters, and orders\n"
    "that a busy service refuses are delivered again. It takes about a minute."
)
_EXAMPLE = "\b\nExample:\n  sharegroup demo"


@click.command(
    help=f"{_TITLE}.\n\n{_SUMMARY}\n\n{_EXAMPLE}", short_help="Two queries, a crash, dead letters: no Kafka needed."
)
def demo() -> int:
    """Run the demo. Exit status 0: all checks passed; 1: one failed, or the story could not end; 130: interrupted."""
    if missing := missing_for_spark():
        print(f"sharegroup: {missing}", file=sys.stderr)
        return 1
    for ending in ENDING:
        if signal.getsignal(ending) is not signal.SIG_IGN:  # `nohup` ignores signals
            signal.signal(ending, signal.default_int_handler)
    try:
        return _run()
    except KeyboardInterrupt:
        print("sharegroup: interrupted; all processes of the demo have ended", file=sys.stderr)
        return _INTERRUPTED


def _run() -> int:
    from sharegroup.demo.checks import check as check_outcome
    from sharegroup.demo.screen import Screen
    from sharegroup.demo.story import tell
    from sharegroup.demo.workspace import Workspace

    workspace = Workspace()
    os.environ.update(workspace.own_environment)
    keep_logs = True
    try:
        with Screen() as screen:
            screen.title(_TITLE, _SUMMARY)
            outcome = tell(workspace, screen)
        checks = check_outcome(outcome)
        screen.close(outcome, checks)
        failed = [check for check in checks if not check.passed]
        if failed:
            raise DemoFailed("failed checks: " + "; ".join(check.promise for check in failed))
        keep_logs = False
    except KeyboardInterrupt:
        keep_logs = False
        raise
    except (DemoFailed, ShareGroupError) as error:
        print(f"sharegroup: the demo failed: {error} (logs: {workspace.logs})", file=sys.stderr)
        return 1
    finally:
        workspace.remove(keep_logs=keep_logs)
    return 0


def missing_for_spark() -> str:
    """Returns what this machine lacks to run a Spark program, and what to do; empty if it lacks nothing."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    advice = f"install Java {_MINIMUM_JAVA} or newer and put `java` on the PATH, or point JAVA_HOME at it"
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"Java is missing: {advice}"
    version = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if version is not None and int(version.group(1)) < _MINIMUM_JAVA:
        return f"Java {version.group(1)} is too old: {advice}"
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is missing: pip install 'sharegroup[spark]'"
    return ""
