"""All interleavings of a small world keep the guarantee, and the explorer finds what would break it.

Wider: ``python -m tests.protocol --help``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mistakes.catalogue import MISTAKES
from tests.mistakes.long_searches import name_of, search
from tests.mistakes.mistake import Make
from tests.protocol import guarantee
from tests.protocol.explored_world import World
from tests.protocol.explorer import Walk
from tests.protocol.setting import Budget, Setting
from tests.protocol.worlds import (
    CONSUMER,
    DEFERS,
    DEFERS_IN_ORDER,
    EXPIRES,
    EXPIRES_IN_ORDER,
    EXPIRES_WITH_CONSUMER,
    HOSTS,
    HOSTS_NOT_ASKED,
    IMPLICIT,
    LIMITED,
    ONE_RECORD,
    ORDERED,
    OWN_MODE,
    REJECTS,
    REPLACED,
    ROLLS,
    SILENT,
    SILENT_AND_REPLACED,
    SLICES,
    STOPPED,
    TWO,
    WORK,
)

ANYTHING = Budget(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
"""One fault of each kind."""

LONG, SLOW = "long", "slow"
"""LONG: `make soak` walks it, and `make test-all` walks its short form, which has one fault less. SLOW: `make test`
leaves it out, since it takes longer than about three seconds, also in its short form."""
BOTH = LONG, SLOW

WALKS: dict[str, tuple[Any, ...]] = {
    "anything goes wrong once": (TWO, ANYTHING),
    "losses are passed over": (Setting(fail_on_data_loss=False), ANYTHING, SLOW),
    "a consumer takes part": (CONSUMER, Budget(2, crashes=1, restarts=1, expiries=1, lost=1), LONG),
    "a consumer signals, and its requests come late": (WORK, Budget(2, expiries=2, delays=1), *BOTH),
    "a consumer signals, falls silent, and dies": (WORK, Budget(2, crashes=1, expiries=2, pauses=1), *BOTH),
    "a consumer signals, and coordinators come and go": (WORK, Budget(2, restarts=1, takeovers=1, expiries=1), *BOTH),
    "the log moves": (TWO, Budget(2, crashes=1, restarts=1, expiries=1, retention=2), *BOTH),
    "a coordinator lives on": (ONE_RECORD, Budget(2, crashes=1, takeovers=1, expiries=1, pauses=1), LONG),
    "requests come twice": (TWO, Budget(2, crashes=1, lost=1, delays=1), *BOTH),
    "a driver is stopped": (STOPPED, Budget(2, expiries=1, stops=1), *BOTH),
    "a driver is stopped while the log moves": (STOPPED, Budget(3, expiries=1, retention=2, stops=1), *BOTH),
    "a sink rejects a record": (REJECTS, Budget(2, crashes=1, restarts=1, expiries=1, pauses=1, delays=1), *BOTH),
    "a sink gives records back": (
        Setting(records=1, most=(1, 1), limit=2, sink=("accept",), gives_back=1),
        Budget(2, crashes=1, restarts=1, takeovers=1, expiries=1),
        *BOTH,
    ),
    "a sink says one thing and then another": (
        ROLLS,
        Budget(2, crashes=2, restarts=1, takeovers=1, expiries=1, pauses=1, lost=1, delays=1),
        LONG,
    ),
    "a sink that is silent of a record releases it": (
        SILENT,
        Budget(2, crashes=2, restarts=1, takeovers=1, expiries=1, pauses=1, delays=1),
        LONG,
    ),
    "a sink decides anew into a target that replaces": (REPLACED, Budget(2, crashes=2, restarts=1, delays=1), LONG),
    "a sink that may be silent writes into a target that replaces": (
        SILENT_AND_REPLACED,
        Budget(2, crashes=2, restarts=1, delays=1),
        LONG,
    ),
    "a sink names one record and passes the other over": (
        Setting(records=2, most=(2,), sink=("accept", "nothing")),
        Budget(1, crashes=1, restarts=1, takeovers=1, expiries=1, lost=1, delays=1),
        SLOW,
    ),
    "one of two queries with sinks is silent": (
        Setting(records=1, most=(1, 1), limit=2, sink=("accept", "nothing")),
        Budget(1, crashes=1, restarts=1, lost=1, delays=1),
        SLOW,
    ),
    "a sink accepts, or rejects": (
        Setting(records=1, most=(1, 1), sink=("accept", "reject")),
        Budget(2, crashes=2, restarts=1, expiries=1, pauses=1, delays=1),
        LONG,
    ),
    "records are isolated": (SLICES, Budget(2, crashes=2, expiries=1, pauses=1), *BOTH),
    "records are quarantined": (Setting(limit=2), Budget(2, crashes=2, expiries=1), SLOW),
    "a coordinator stands still": (ONE_RECORD, Budget(2, crashes=1, expiries=1, pauses=1, stalls=1), SLOW),
    "configs change where silence accepts": (IMPLICIT, Budget(2, crashes=1, restarts=1, configs=1)),
    "configs change where silence releases": (SILENT, Budget(2, crashes=1, restarts=1, configs=2), LONG),
    "a query has a mode of its own": (OWN_MODE, Budget(2, crashes=1, configs=1), SLOW),
    "the topic is made anew": (ONE_RECORD, Budget(2, crashes=1, topics=1), LONG),
    "the topic is made anew twice": (
        Setting(records=1, most=(1,), fail_on_data_loss=False),
        Budget(2, crashes=1, delays=1, topics=2),
        SLOW,
    ),
    "the topic that a sink decides is made anew": (
        Setting(records=1, most=(1,), sink=("accept", "reject")),
        Budget(2, crashes=1, restarts=1, topics=1),
        SLOW,
    ),
    "the topic gets a partition": (
        ONE_RECORD,
        Budget(2, crashes=1, restarts=1, takeovers=1, expiries=1, pauses=1, lost=1, delays=1, partitions=1),
        LONG,
    ),
    "the topic gets partitions while its log moves": (
        Setting(records=1, most=(2,)),
        Budget(3, crashes=1, retention=1, partitions=2),
        SLOW,
    ),
    "records are in order": (ORDERED, Budget(2, crashes=1, expiries=1, pauses=1, delays=1), SLOW),
    "records in order are quarantined": (
        Setting(records=3, most=(3, 1), limit=2, ordered=True),
        Budget(2, crashes=2, expiries=1),
        SLOW,
    ),
    "a topic in order gets a partition": (
        ORDERED,
        Budget(2, crashes=1, restarts=1, expiries=1, pauses=1, partitions=1),
        *BOTH,
    ),
    "a sink defers records of two partitions": (
        DEFERS,
        Budget(2, crashes=1, restarts=1, expiries=1, deferrals=2),
        *BOTH,
    ),
    "a sink in order defers what follows": (
        DEFERS_IN_ORDER,
        Budget(2, crashes=1, restarts=1, expiries=1, deferrals=2),
        *BOTH,
    ),
    "a limit of records in flight": (
        LIMITED,
        Budget(2, crashes=1, restarts=1, takeovers=1, expiries=1, pauses=1),
        LONG,
    ),
    "all topics are paused": (CONSUMER, Budget(2, crashes=1, restarts=1, expiries=1, pauses=1, stoppages=2), LONG),
    "records become too old": (EXPIRES, Budget(2, crashes=1, restarts=1, expiries=1, delays=1, too_old=1), *BOTH),
    "records in order become too old": (EXPIRES_IN_ORDER, Budget(2, crashes=1, expiries=1, too_old=1), *BOTH),
    "what a consumer holds becomes too old": (EXPIRES_WITH_CONSUMER, Budget(2, expiries=1, lost=1, too_old=1), LONG),
    "a query never comes back": (TWO, Budget(2, crashes=1, restarts=1, expiries=1, departures=1), LONG),
    "a query with a sink never comes back": (
        Setting(records=1, most=(1, 1), sink=("accept", "reject")),
        Budget(2, crashes=1, restarts=1, departures=1),
        LONG,
    ),
    "latestOffset has no start": (Setting(without_start=True), ANYTHING, SLOW),
    "latestOffset has no start and queries die twice": (
        Setting(without_start=True),
        Budget(2, crashes=2, expiries=1, lost=1),
        LONG,
    ),
    "a driver is stopped and latestOffset has no start": (
        Setting(records=3, most=(1,), fetches=1, without_start=True),
        Budget(2, expiries=1, stops=1),
        *BOTH,
    ),
    "a sink decides anew and latestOffset has no start": (
        Setting(records=1, most=(1,), sink=("accept", "release"), without_start=True),
        Budget(2, crashes=2, restarts=1, delays=1),
        LONG,
    ),
    "two queries die with their coordinator": (ONE_RECORD, Budget(3, crashes=2, restarts=1, expiries=1), *BOTH),
    "an owner on another host falls silent": (HOSTS, Budget(2, delays=1, silences=1), LONG),
    "anything goes wrong on two hosts": (
        HOSTS,
        Budget(1, crashes=1, restarts=1, expiries=1, pauses=1, lost=1, delays=1, silences=1, releases=1),
        SLOW,
    ),
    "owners on two hosts can't be asked": (HOSTS_NOT_ASKED, Budget(0), SLOW),
}
"""Each walk's setting, budget and length."""


def short_form(name: str) -> tuple[Setting, Budget]:
    """Returns the walk that `make test-all` makes."""
    setting, budget, *length = WALKS[name]
    return setting, budget._replace(total=budget.total - 1) if LONG in length else budget


def walks() -> Iterator[Any]:
    """Each walk with its whole budget, and the short form of each long one."""
    for name, (setting, budget, *length) in WALKS.items():
        words, slow = name.replace(" ", "-"), [pytest.mark.slow] if SLOW in length else []
        if LONG in length:
            yield pytest.param(setting, budget, id=words, marks=pytest.mark.soak)
            words = f"short-{words}"
        yield pytest.param(*short_form(name), id=words, marks=slow)


def test_every_long_walk_has_two_things_or_more_that_go_wrong() -> None:
    assert all(budget.total >= 2 for _, budget, *length in WALKS.values() if LONG in length)


@pytest.mark.parametrize(("setting", "budget"), list(walks()))
def test_the_guarantee_holds_in_every_order_of_events(setting: Setting, budget: Budget) -> None:
    walk = Walk(setting=setting, budget=budget).run()
    print(walk)
    assert not walk.broken, walk.story()
    assert not walk.cut_off


DOUBLED = Setting(most=(1, 1)), Budget(2, expiries=1, pauses=1, delays=1)


@pytest.mark.slow
def test_a_doubled_request_after_a_lost_lock_blocks_no_member() -> None:
    setting, budget = DOUBLED
    walk = Walk(setting=setting, budget=budget).run()
    assert not walk.broken, walk.story()


@functools.cache
def what_breaks_without_a_mistake(setting: Setting, budget: Budget) -> str:
    """The story of what the small world breaks; empty if it keeps the guarantee, or if a walk of `make test-all`
    covers it and would fail. Several mistakes share a world."""
    if any(setting == walked and whole.covers(budget) for walked, whole in map(short_form, WALKS)):
        return ""
    walk = Walk(setting=setting, budget=budget).run()
    return walk.story() if walk.broken else ""


FOUND_HERE = [
    search("explorer", name_of(mistake), mistake.make, *world)
    for mistake in MISTAKES.values()
    for world in mistake.explorer
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "setting", "budget"), FOUND_HERE)
def test_the_mistake_is_found(make: Make, setting: Setting, budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not what_breaks_without_a_mistake(setting, budget)
    make(monkeypatch)
    walk = Walk(setting=setting, budget=budget).run()
    print(walk)
    print(walk.story())
    assert walk.broken


EXCEPTIONS = {
    "a sink that replaces repeats when a lock was lost": ("lost", TWO, Budget(1, expiries=1, pauses=1), "replace"),
    "a sink that skips repeats when a lock was lost": ("lost", TWO, Budget(2, crashes=1, expiries=1), "skip"),
    "a sink that skips repeats when isolation cut the batch": ("cut", SLICES, Budget(1, crashes=1), "skip"),
}


@pytest.mark.parametrize(
    ("excuse", "setting", "budget", "sink"), EXCEPTIONS.values(), ids=[name.replace(" ", "-") for name in EXCEPTIONS]
)
def test_each_exception_that_the_guarantee_makes_is_needed(
    excuse: str, setting: Setting, budget: Budget, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = guarantee.outputs

    def without(world: World, setting: Setting) -> str:
        found = right(world._replace(**{excuse: 0}), setting)
        return found if f"sinks that {sink}" in found else ""

    monkeypatch.setattr(guarantee, "outputs", without)
    walk = Walk(setting=setting, budget=budget).run()
    print(walk)
    print(walk.story())
    assert walk.broken
