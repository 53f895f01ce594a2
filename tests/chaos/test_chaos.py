"""Three minutes of chaos: no record is lost, no answer is forgotten, and no record has two holders."""

import pytest

from tests.chaos.world import World
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SECONDS = 180
SEED = 20_261_121


def test_whoever_is_killed_every_record_is_accepted_or_archived(tmp_path):
    with KafkaBroker() as broker, World(tmp_path, SEED, broker) as world:
        world.run(SECONDS)
        world.drain()
        result = world.reckon()
    print(result)
    assert not result.problems, result
    assert result.kills["coordinator kill"] and result.kills["coordinator stop"] and result.kills["broker kill"]
    assert result.kills["member kill"] and result.kills["member stop"]
    assert all(result.acked.values()) and (result.takeovers_ms or result.several_harmed_ms)
