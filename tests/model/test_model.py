"""The core against the naive model, on random walks. Longer: ``python -m tests.model --steps 1000000``."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from coordinator.protocol.errors import InvalidRecordState
from tests.mistakes.catalogue import MISTAKES
from tests.mistakes.long_searches import name_of, search
from tests.model.state import Refused
from tests.model.walk import DEFERRING, EXPIRING, FLOWING, ORDERED, Walk

STEPS = 1_500
SEEDS_TO_FIND_A_MISTAKE = 150
RULES_OF_ORDER = (
    "earlier plans ended",
    "taken along at a reclaim",
    "taken along at a session's end",
    "given back after a release",
    "a lock ends later ones",
    "waits",
    "left to a member that waits",
)
LIMITS = ("share.paused.topics", "share.max.records.per.second", "share.max.in.flight.records")
FOUND_HERE = [
    search("model", name_of(mistake), mistake.make, mistake.model)
    for mistake in MISTAKES.values()
    if mistake.model is not None
]


@pytest.mark.parametrize("walk", range(10))
def test_the_engine_and_the_model_agree_on_random_walks(walk: int) -> None:
    seed = random.randrange(2 * DEFERRING) if walk else 1
    print(f"python -m tests.model --seed {seed} --steps {STEPS}")
    one = Walk(seed)
    try:
        one.run(STEPS)
    except AssertionError:
        print("\n".join(one.trace[-12:]))
        raise


@pytest.mark.parametrize("seed", [DEFERRING, DEFERRING + ORDERED + 2])
def test_the_engine_and_the_model_agree_about_deferred_records(seed: int) -> None:
    walk = Walk(seed)
    walk.run(STEPS)
    assert walk.seen["deferred"] and walk.seen["all deferred"], walk.seen


def test_a_walk_meets_every_kind_of_command() -> None:
    """Every kind of command is taken, and refused, somewhere on the way."""
    seen = Walk(10)
    seen.run(3_000)
    kinds = ("join", "heartbeat", "acquire", "start", "complete", "leave")
    assert all(seen.seen[kind] and seen.seen[f"{kind} refused"] for kind in kinds), seen.seen
    assert seen.seen["acknowledgement taken"]
    assert seen.seen["acknowledgement refused"]
    assert seen.seen["fetch"]
    assert seen.seen["loss told"]
    assert seen.seen["lost, and held by nobody"]
    assert seen.seen["given up, and logged"]
    assert seen.seen["stall with a lock held"] > seen.seen["stall with a lock held, a session given"] > 0


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """What twelve walks meet."""
    found = Counter[str]()
    for seed in range(12):
        walk = Walk(seed)
        walk.run(700)
        found += walk.seen
    return found


def test_walks_meet_every_action_of_sinks(seen: Counter[str]) -> None:
    met = ("stage", "stage refused", "file", "dead letter filed", "dead letter was written")
    assert all(seen[what] for what in met), seen
    assert all(
        seen[what] for what in ("veto", "silence", "passed over", "nothing said", "gap at completion", "given back")
    ), seen
    assert all(seen[f"given up {disposition}"] for disposition in (1, 2, 3, 4)), seen


def test_walks_meet_every_action_of_an_administrator(seen: Counter[str]) -> None:
    """Decisions by hand and deletions are carried out, and refused."""
    actions = ("alter", "archive", "release", "delete_offsets", "delete_group")
    assert all(seen[action] and seen[f"{action} refused"] for action in actions), seen
    assert all(seen[what] for what in ("offsets deleted", "group deleted", "released by hand, and held")), seen


def seen_from(first: int, walks: int) -> Counter[str]:
    """What walks of 500 steps meet together, from the seed ``first`` on."""
    met = Counter[str]()
    for seed in range(first, first + walks):
        walk = Walk(seed)
        walk.run(500)
        met += walk.seen
    return met


def test_walks_of_groups_in_order_meet_every_rule_of_order() -> None:
    met = seen_from(ORDERED, 9)
    assert all(met[f"in order: {what}"] for what in RULES_OF_ORDER), met


@pytest.mark.parametrize("kind", [FLOWING, FLOWING + ORDERED, FLOWING + DEFERRING])
def test_walks_of_groups_with_limits_meet_each_limit(kind: int) -> None:
    met = seen_from(kind, 3)
    assert all(met[f"limited by {key}"] for key in LIMITS), met
    assert met["acquired up to a limit"], met


@pytest.mark.parametrize("kind", [EXPIRING, EXPIRING + ORDERED, EXPIRING + FLOWING])
def test_walks_give_up_what_is_too_old_and_not_held(kind: int) -> None:
    met = seen_from(kind, 3)
    assert met["given up 5"] and met["held, and too old"], met


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "first"), FOUND_HERE)
def test_the_model_finds_the_mistake(
    mistake: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, Refused, LookupError, ValueError, AttributeError, InvalidRecordState)) as found:
        for seed in range(first, first + SEEDS_TO_FIND_A_MISTAKE):
            Walk(seed).run(500)
    print(found.value)
