"""SIGKILL of driver, coordinator and broker at random moments: accepted and dead-lettered together are what was
produced, nothing is both, and released records came back.

The long forms are for `make soak`. There SINK_CHAOS_RECORDS=200000 SINK_CHAOS_KILLS=15 SINK_CHAOS_SEED=7 is a run of
some minutes; with SINK_CHAOS_QUERIES=a,b two queries share the records."""

import os

import pytest

from tests.support.group_state import forget_clients
from tests.support.kafka_broker import KafkaBroker
from tests.support.sink_chaos import BY_COUNT, JITTER, VICTIMS, SinkChaos, chaos_job
from tests.support.sink_reckoning import reckon, reckon_by_count

RECORDS = int(os.environ.get("SINK_CHAOS_RECORDS", "16000"))
KILLS = int(os.environ.get("SINK_CHAOS_KILLS", "4"))
SEED = int(os.environ.get("SINK_CHAOS_SEED", "20261121"))
QUERIES = os.environ.get("SINK_CHAOS_QUERIES", "a").split(",")
FEW_RECORDS, FEW_KILLS, FEW_SEED = 160, 2, 1
"""The coordinator is killed, and then the broker: a driver's kill costs as much time as both (test_kills has one)."""
MOST_RUNS = 5
TIMEOUT_S = 600 + RECORDS // 100 + 30 * KILLS

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(TIMEOUT_S + 120)]


def sizes(records: int) -> dict[str, str]:
    """Sixteen batches of many records or two of few, and slices that begin at a batch."""
    batch = str(max(records // 16, 80))
    return {"maxOffsetsPerTrigger": batch, "minPartitions": "2", "share.isolation.base": batch}


def decided_by_count(program, folder, seed):
    """Run a job that decides each record by its delivery count, into a target that replaces its output of a batch, and
    says so. Returns what became of the records."""
    with KafkaBroker() as broker:
        job = chaos_job(broker, folder, **sizes(RECORDS), **{"share.release.backoff.ms": "500"})
        replaces = {"outputOnReplay": "replaces"}
        chaos = SinkChaos(job, broker, program, seed, QUERIES, columns=BY_COUNT, sink_options=replaces)
        try:
            chaos.produce(RECORDS)
            chaos.run(KILLS, TIMEOUT_S)
            return reckon_by_count(chaos)
        finally:
            forget_clients()


@pytest.mark.soak
@pytest.mark.timeout(MOST_RUNS * TIMEOUT_S)
def test_records_decided_by_delivery_count_are_accepted_once_or_dead_lettered(program, tmp_path):
    """Another seed follows a run whose kills hit no batch that is replayed and decided by counts."""
    replayed = 0
    for seed in range(SEED, SEED + MOST_RUNS):
        (folder := tmp_path / str(seed)).mkdir()
        result = decided_by_count(program, folder, seed)
        print(seed, result)
        assert not result.problems, result
        if replayed := result.numbers["replayed, and decided by the count"]:
            break
    assert replayed, f"no kill of {MOST_RUNS} runs hit such a batch"


@pytest.mark.parametrize(
    ("records", "kills", "jitter", "seed"),
    [
        # Without jitter the released records of a batch come back in two batches, not in as many as there are lots.
        pytest.param(FEW_RECORDS, FEW_KILLS, "0", FEW_SEED, id="short"),
        pytest.param(RECORDS, KILLS, str(JITTER), SEED, id="long", marks=pytest.mark.soak),
    ],
)
def test_with_kills_each_record_is_accepted_or_dead_lettered(
    program, shared_program, tmp_path, records, kills, jitter, seed
):
    """The long form has a record that kills the work, too: tests/spark/test_poison.py has a short form of that."""
    with KafkaBroker() as broker:
        own = {"includeHeaders": "true", "share.release.backoff.jitter": jitter}
        job = chaos_job(broker, tmp_path, **sizes(records), **own)
        # No driver is killed in the short form: it runs in the session of the other tests.
        chaos = SinkChaos(job, broker, shared_program.get if kills == FEW_KILLS else program, seed, QUERIES)
        try:
            chaos.produce(records, poison=records > FEW_RECORDS)
            chaos.run(kills, TIMEOUT_S)
            result = reckon(chaos)
        finally:
            forget_clients()
    print(result)
    assert not result.problems, result
    assert {victim for _, victim in chaos.happened.kills} == set(VICTIMS) or len(VICTIMS) > kills
    assert result.numbers["releases"] and result.numbers["rejected"]
