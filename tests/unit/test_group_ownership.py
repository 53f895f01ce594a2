"""A group that another coordinator owns is taken by whom the policy of fleets and of coordinators on demand allows."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.protocol.errors import GroupTakenOver
from coordinator.service.stores.kafka.ownership import FleetMember, LivingOwner
from coordinator.state_log.owner import Owner


def owner(installation: str, process: str) -> Owner:
    return Owner(installation_id=installation, process=process, host="h", pid=1)


def fleet_member() -> FleetMember:
    no_fleet: Any = None  # Kafka's group is not asked
    return FleetMember(owner("fleet", "p1"), no_fleet)


def test_a_fleet_takes_no_group_back_from_another_installation() -> None:
    """Else a coordinator on demand and the fleet take it from each other in turns."""
    with pytest.raises(GroupTakenOver):
        fleet_member().check("billing", 0, owner("on demand", "p2"), had=True, claims=False, end=0)
    with pytest.raises(GroupTakenOver):
        LivingOwner(owner("on demand", "p2")).check("billing", 0, owner("fleet", "p1"), had=True, claims=False, end=0)


def test_a_fleet_process_takes_a_group_from_another_process_of_the_fleet() -> None:
    fleet_member().check("billing", 0, owner("fleet", "p2"), had=True, claims=False, end=0)
    fleet_member().check("billing", 0, None, had=True, claims=False, end=0)


def test_a_fleet_process_that_never_had_the_group_takes_it_once() -> None:
    fleet_member().check("billing", 0, owner("on demand", "p2"), had=False, claims=False, end=0)
