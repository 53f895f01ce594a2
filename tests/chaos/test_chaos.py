"""Chaos: no record is lost, no answer is forgotten, no record has two holders, and who was left alone loses no lock."""

import pytest

from tests.chaos.chaos_world import GROUPS, World
from tests.chaos.hosts_world import HostsWorld
from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.broker

SHORT_S, LONG_S = 15, 180
SEED = 20_261_121


def short_world(folder, broker):
    """The world of the short run, where much is harmed at once: a member that looks for its coordinator waits for each
    stopped one in turn, and shall not lose its session by that."""
    return World(folder, SEED, broker, harm_s=(0.5, 2.0), member_session_ms=30_000)


def reckoned(world, seconds):
    """The result of so many seconds of chaos, in which no promise was broken."""
    with world:
        world.run(seconds)
        world.drain()
        result = world.reckon()
    print(result)
    assert not result.problems, result
    assert all(result.acked.values())
    return result


@pytest.mark.slow
def test_with_kills_and_stops_every_record_is_accepted_or_archived(tmp_path):
    with KafkaBroker() as broker:
        result = reckoned(short_world(tmp_path, broker), SHORT_S)
    assert result.kills
    assert all(result.audits[group].deferred for group in GROUPS), result


HARMS = [f"{kind} {how}" for kind in ("coordinator", "member") for how in ("kill", "stop")]


@pytest.mark.soak
def test_the_same_for_three_minutes_in_which_everything_is_harmed(tmp_path):
    with KafkaBroker() as broker:
        result = reckoned(World(tmp_path, SEED, broker), LONG_S)
    assert all(result.kills[harm] for harm in (*HARMS, "broker kill", "broker stop"))
    assert result.takeovers_ms or result.several_harmed_ms


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_hosts_lose_no_record_in_three_minutes_of_faults(tmp_path):
    with KafkaBroker() as broker:
        result = reckoned(HostsWorld(tmp_path, SEED, broker, harm_s=(2.0, 8.0)), LONG_S)
    assert all(result.kills[harm] for harm in (*HARMS, "broker kill"))
