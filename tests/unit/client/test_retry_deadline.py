"""How long a call is tried, by a process that may be stopped in the middle of it."""

import pytest
import tenacity

from coordinator.client.client import CoordinatorClient
from coordinator.client.connection import Unreachable
from coordinator.kafka.retries import MAX_ATTEMPT_S, StopAtDeadline
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.messages import DescribeGroup


class Tries:
    """Fails as often as it is told, and takes so long each time."""

    def __init__(self, fails, takes_s):
        self.fails, self.takes_s, self.now_s, self.made = fails, takes_s, 0.0, 0

    def __call__(self):
        self.made += 1
        self.now_s += self.takes_s
        if self.made <= self.fails:
            raise Unreachable
        return "an answer"


def tried(tries, timeout_s):
    stop = StopAtDeadline(timeout_s, lambda: tries.now_s)
    return tenacity.Retrying(stop=stop, reraise=True)(tries)


def test_a_call_fails_after_its_retry_time():
    tries = Tries(fails=1_000, takes_s=7.0)
    with pytest.raises(Unreachable):
        tried(tries, 60.0)
    assert tries.made == 9


def test_a_process_that_was_stopped_for_an_hour_retries():
    tries = Tries(fails=2, takes_s=3_600.0)
    assert tried(tries, 3 * MAX_ATTEMPT_S) == "an answer"


class StoppedDirectory:
    """Where a client finds nobody; its process was stopped while it looked, so that an hour has passed."""

    are_several = False
    where = "nowhere"

    def __init__(self, clock):
        self.clock, self.looks = clock, 0

    def connect(self, group_id=""):
        self.looks += 1
        self.clock[0] += 3_600.0
        raise Unreachable("nobody there")

    def gone(self, group_id, reason):
        return CoordinatorNotAvailable(group_id=group_id, reason=reason)


def test_a_client_whose_process_was_stopped_in_a_call_asks_again(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("coordinator.kafka.retries.StopAtDeadline.__init__.__defaults__", (lambda: clock[0],))
    directory = StoppedDirectory(clock)
    client = CoordinatorClient(directory, retry_timeout_s=3 * MAX_ATTEMPT_S)
    with pytest.raises(CoordinatorNotAvailable):
        client.call(DescribeGroup(group_id="billing"))
    assert directory.looks == 3
