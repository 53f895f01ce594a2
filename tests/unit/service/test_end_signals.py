"""A process that is told to end by a signal ends, whichever of its threads gets the signal, and whatever the main
thread does in that moment."""

import signal
import subprocess
import sys

import pytest

from tests.support.imports import ROOT

ENDS = """
import os, signal, sys, threading
from coordinator.service.process.end_signals import set_by_signal

told, number = threading.Event(), int(sys.argv[1])
set_by_signal(told)
{}
told.wait()
print("told to")
"""
TO_ANOTHER_THREAD = """
def kill():
    while not told._cond._waiters:  # until the main thread waits
        pass
    signal.pthread_kill(threading.get_ident(), number)

threading.Thread(target=kill).start()
"""
WHILE_THE_MAIN_THREAD_HOLDS_THE_EVENTS_LOCK = """
with told._cond:
    os.kill(os.getpid(), number)
    for _ in range(1_000):
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "comes",
    [
        pytest.param(TO_ANOTHER_THREAD, id="to another thread"),
        pytest.param(WHILE_THE_MAIN_THREAD_HOLDS_THE_EVENTS_LOCK, id="while the main thread holds the event's lock"),
    ],
)
def test_a_signal_ends_the_wait_of_the_main_thread(comes, number):
    done = subprocess.run(
        [sys.executable, "-c", ENDS.format(comes), str(int(number))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("told to\n", 0), done.stderr
