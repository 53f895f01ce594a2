"""A group that another coordinator owns is taken by whom the policy of fleets and of coordinators on demand allows."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from coordinator.protocol.errors import GroupTakenOver, NotCoordinator
from coordinator.service.stores.kafka import kafka_store, ownership
from coordinator.service.stores.kafka.kafka_store import _OpenGroup
from coordinator.service.stores.kafka.ownership import FleetMember, LivingOwner, OwnedElsewhere
from coordinator.state_log.owner import PATIENCE_S, Owner

ANY: Any = None


def owner(installation: str, process: str, **fields: Any) -> Owner:
    return Owner(installation_id=installation, process=process, host="h", pid=1, **fields)


def fleet_member(living: LivingOwner | None = None, *, is_leaving: bool = False) -> FleetMember:
    fleet: Any = SimpleNamespace(is_leaving=is_leaving)  # Kafka's group is not asked
    return FleetMember(living or LivingOwner(owner("fleet", "p1")), fleet)


def on_demand(process: str = "p2") -> LivingOwner:
    return LivingOwner(owner("on demand", process, answers=1))


def asked(process: str, installation: str, **fields: Any) -> Owner:
    """An owner that other hosts can ask."""
    return owner(installation, process, tenure=f"tenure of {process}", answers=1, **fields)


def check(policy: FleetMember | LivingOwner, before: Owner | None, **fields: Any) -> None:
    policy.check("billing", 0, before, **{"had": False, "claims": False, "end": 0, **fields})


def test_a_fleet_takes_no_group_back_from_another_installation() -> None:
    """Else a coordinator on demand that can't be asked and the fleet take it from each other in turns."""
    with pytest.raises(GroupTakenOver):
        check(fleet_member(), owner("on demand", "p2"), had=True)
    with pytest.raises(GroupTakenOver):
        check(on_demand(), owner("fleet", "p1"), had=True)


def test_a_fleet_process_takes_a_group_from_another_process_of_the_fleet() -> None:
    check(fleet_member(), asked("p2", "fleet"), had=True)
    check(fleet_member(), None, had=True)


def test_a_fleet_process_that_never_had_the_group_takes_it_once() -> None:
    check(fleet_member(), owner("on demand", "p2"))


@pytest.mark.parametrize(
    ("policy", "before"), [(fleet_member(), asked("p2", "on demand")), (on_demand(), asked("p1", "fleet"))]
)
@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("had", [True, False])
def test_an_owner_that_may_live_keeps_its_group(policy: Any, before: Owner, claims: bool, had: bool) -> None:
    with pytest.raises(OwnedElsewhere):
        check(policy, before, claims=claims, had=had)
    check(policy, msgspec.structs.replace(before, released=True), claims=claims, had=had)


@pytest.mark.parametrize("is_fleet", [True, False])
def test_an_owner_found_gone_loses_its_group_unless_its_log_grew(is_fleet: bool) -> None:
    living = LivingOwner(owner("fleet", "p1")) if is_fleet else on_demand("p1")
    policy = fleet_member(living) if is_fleet else living
    before = asked("p2", "another")
    living.found_gone("billing", before.tenure, 10)
    check(policy, before, end=10)
    with pytest.raises(OwnedElsewhere):
        check(policy, before, end=11)
    with pytest.raises(OwnedElsewhere):
        check(policy, msgspec.structs.replace(before, tenure="a later one"), end=10)


def test_an_owner_found_gone_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may live again, and have had nothing to write since."""
    policy, before = on_demand("p1"), asked("p2", "another")
    policy.found_gone("billing", before.tenure, 10)
    later_s = ownership.now_s() + ownership.FOUND_LASTS_S
    for seconds, keeps in ((-1.0, False), (1.0, True)):
        monkeypatch.setattr(ownership, "now_s", lambda seconds=seconds: later_s + seconds)
        with pytest.raises(OwnedElsewhere) if keeps else contextlib.nullcontext():
            check(policy, before, end=10)


@pytest.mark.parametrize("answers", [1, 2])
def test_no_version_of_the_requests_lets_an_owner_lose_its_group(answers: int) -> None:
    with pytest.raises(OwnedElsewhere):
        check(on_demand(), msgspec.structs.replace(asked("p1", "another"), answers=answers), claims=True)


def test_a_fleet_gives_groups_up_only_as_it_leaves() -> None:
    assert not fleet_member().hands_over
    assert fleet_member(is_leaving=True).hands_over


def test_members_are_told_of_an_owner_that_can_t_be_asked() -> None:
    for policy in (fleet_member(), on_demand()):
        assert isinstance(policy.lost("billing", owner("another", "p3")), GroupTakenOver)
        for newer in (asked("p3", "another"), owner(policy.me.installation_id, "p3"), None):
            assert type(policy.lost("billing", newer)) is NotCoordinator


# --- patience


def test_hosts_that_find_each_other_silent_in_turn_grow_the_patience() -> None:
    one, two = on_demand("one"), fleet_member()
    owned, patience = one.new_owner(None, had=False), []
    for number in range(12):
        claimant = two if number % 2 == 0 else one
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
        (asked("restarted here", "on demand", patience_s=24), True),
    ],
)
def test_the_successor_of_a_dead_or_leaving_owner_has_the_least_patience(before: Owner | None, had: bool) -> None:
    assert on_demand("two").new_owner(before, had=had).patience_s == PATIENCE_S


def test_each_load_has_a_tenure_of_its_own() -> None:
    living = on_demand()
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
