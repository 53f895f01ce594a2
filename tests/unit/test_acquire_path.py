"""One acquire is short to read (docs/adr/0027): it passes few files on its way to the durable append."""

import sys
import threading
from pathlib import Path

import coordinator
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running, held

ROOT = Path(coordinator.__file__).parent
AROUND = {
    "service/process/clock.py",  # the event loop reads the time
    "service/runtime/snapshots.py",  # and looks for logs that are due for a snapshot, whatever was asked
    "service/brokers/asked_ahead.py",  # asks for the start of the plan, after its reply
    "service/brokers/retries.py",  # in a thread of that
}


def test_an_acquire_passes_at_most_thirty_files(tmp_path):
    passed = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            passed.add(str(path.relative_to(ROOT)))

    cluster = FakeCluster()
    cluster.add("orders", 2, end=100)
    threading.setprofile(note)
    running = Running(tmp_path / "state.db", cluster)
    try:
        running.join(starting_offsets="earliest")
        plan = running.next()
        running.start(plan.plan_id)
        for partition in range(2):
            cluster.move("orders", 150, partition)
        passed.clear()
        sys.setprofile(note)
        following = running.next(plan.plan_id)
        sys.setprofile(None)
    finally:
        threading.setprofile(None)
        running.close()
    assert held(following) == {("orders", 0): [(100, 149)], ("orders", 1): [(100, 149)]}
    path = {name for name in passed if name.startswith(("core/", "service/"))} - AROUND
    assert {"core/commands/acquire_plan.py", "service/stores/sqlite_store.py"} < path
    assert len(path) <= 30, sorted(path)
