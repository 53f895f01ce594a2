"""A group that another coordinator owns is taken by whom the policy allows."""

import contextlib
from typing import Any

import msgspec
import pytest

from coordinator.protocol.errors import GroupTakenOver, NotCoordinator
from coordinator.protocol.host_errors import OwnedElsewhere
from coordinator.service.stores.kafka import kafka_store, ownership
from coordinator.service.stores.kafka.kafka_store import _OpenGroup
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.state_log.owner_record import PATIENCE_S, Owner
from coordinator.state_log.owner_state import OwnerState

ANY: Any = None


def owner(installation: str, process: str, **fields: Any) -> Owner:
    return Owner(installation_id=installation, process=process, host="h", pid=1, **fields)


def one(process: str = "p1") -> LivingOwner:
    return LivingOwner(owner("one", process, answers=1))


def asked(process: str, installation: str, **fields: Any) -> Owner:
    """An owner that other hosts can ask."""
    return owner(installation, process, tenure=f"tenure of {process}", answers=1, **fields)


def check(policy: LivingOwner, before: Owner | None, **fields: Any) -> None:
    policy.check("billing", before, **{"had": False, "claims": False, "end": 0, **fields})


def test_no_group_is_taken_back_from_an_owner_that_is_not_asked() -> None:
    """Else the two take it from each other in turns."""
    with pytest.raises(GroupTakenOver):
        check(one(), owner("another", "p2"), had=True)


@pytest.mark.parametrize("answers", [1, 2])
@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("had", [True, False])
def test_an_owner_that_may_live_keeps_its_group(claims: bool, had: bool, answers: int) -> None:
    """Whatever version of the requests it answers."""
    before = msgspec.structs.replace(asked("p2", "another"), answers=answers)
    with pytest.raises(OwnedElsewhere):
        check(one(), before, claims=claims, had=had)
    check(one(), msgspec.structs.replace(before, released=True), claims=claims, had=had)


def test_an_owner_found_gone_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may live again, and have had nothing to write since."""
    policy, before = one(), asked("p2", "another")
    policy.found("billing", before.tenure, OwnerState.SILENT, 10)
    later_s = ownership.now_s() + ownership.FOUND_LASTS_S
    for seconds, keeps in ((-1.0, False), (1.0, True)):
        monkeypatch.setattr(ownership, "now_s", lambda seconds=seconds: later_s + seconds)
        with pytest.raises(OwnedElsewhere) if keeps else contextlib.nullcontext():
            check(policy, before, end=10)


def test_members_are_told_of_an_owner_that_can_t_be_asked() -> None:
    assert isinstance(one().lost("billing", owner("another", "p3")), GroupTakenOver)
    for newer in (asked("p3", "another"), owner("one", "p3"), None):
        assert type(one().lost("billing", newer)) is NotCoordinator


# --- patience


def test_hosts_that_find_each_other_silent_in_turn_grow_the_patience() -> None:
    first, second = one(), LivingOwner(owner("two", "p2", answers=1))
    owned, patience = first.new_owner(None, had=False), []
    for number in range(12):
        claimant = second if number % 2 == 0 else first
        owned = claimant.new_owner(owned, had=number > 1)
        patience.append(owned.patience_s)
    # The first two takeovers follow a death as far as anybody knows: each host takes the group for the first time.
    assert patience[:6] == [PATIENCE_S, PATIENCE_S, 12, 24, 48, 60]
    assert set(patience[6:]) == {60}


@pytest.mark.parametrize(
    ("before", "had"),
    [
        (None, False),
        (asked("killed", "another", patience_s=24), False),
        (asked("left", "another", patience_s=24, released=True), True),
        (asked("restarted here", "one", patience_s=24), True),
    ],
)
def test_the_successor_of_a_dead_or_leaving_owner_has_the_least_patience(before: Owner | None, had: bool) -> None:
    assert one().new_owner(before, had=had).patience_s == PATIENCE_S


def test_each_load_has_a_tenure_of_its_own() -> None:
    living = one()
    assert living.new_owner(None, had=False).tenure != living.new_owner(None, had=False).tenure


def test_an_owner_that_lasts_has_the_least_patience_again(monkeypatch: pytest.MonkeyPatch) -> None:
    time_s = 0.0
    monkeypatch.setattr(kafka_store, "now_s", lambda: time_s)
    calm, grown = (
        _OpenGroup(ANY, ANY, 0, 0.0, asked("p1", "one", patience_s=patience)) for patience in (PATIENCE_S, 24)
    )
    time_s = 240.0
    assert grown.calm_owner().patience_s == 24
    time_s = 240.1
    assert grown.calm_owner().patience_s == PATIENCE_S
    assert calm.calm_owner().patience_s == PATIENCE_S
