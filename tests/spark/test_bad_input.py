"""Bad input that only the cluster, the checkpoint or the state can show.

A named error that says what to do, and nothing is lost."""

import json
import shutil
import socket
import uuid
from contextlib import closing

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.mark.slow
def test_an_unreachable_broker_is_named_and_the_password_is_not(job, start, shared_program, runtime_dir):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    secret = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "clerk",
        "kafka.sasl.password": "hunter2-secret",
    }
    error = start(job("orders", bootstrap=address, **secret).query("a")).wait_over().error()
    assert "BrokerNotReachable" in error and address in error and "within 15000 ms" in error
    logs = [path.read_text(errors="replace") for path in runtime_dir.rglob("*.log")]
    assert not any("hunter2" in text for text in (error, shared_program.get().log(), *logs))


def test_a_checkpoint_of_sparks_kafka_source_is_refused_with_its_offsets(orders, job, start):
    """The files are those of that source, whose only difference is the offset."""
    done = start(job(orders).query("a", trigger="available_now")).wait_over()
    assert not done.error()
    offsets = done.spec.checkpoint_path / "offsets"
    for path in offsets.iterdir():  # among them the checksum, which no longer fits
        lines = path.read_text(errors="replace").splitlines()
        path.unlink()
        if path.name == "0":
            path.write_text("\n".join([*lines[:-1], json.dumps({orders: {"0": 17}})]))
    refused = start(job(orders).query("a", checkpoint=str(done.spec.checkpoint_path))).wait_over().error()
    assert "CheckpointOfAnotherSource" in refused and f"""startingOffsets='{{"{orders}":{{"0":17}}}}'""" in refused


@pytest.mark.slow
def test_an_added_topic_is_read_and_a_removed_topics_records_are_released(
    kafka, orders, topic, job, start, shared_program
):
    more = topic("more")
    kafka.produce(more, numbers(100, first=1_000))
    queue = job(orders)
    start(queue.query("a", trigger="available_now")).wait_over()
    both = f"{orders},{more}"
    held = start(queue.query("a", options={"subscribe": both, "startingOffsets": "earliest"}, hold=("1050",)))
    held.wait_held("1050").stop()
    kafka.produce(orders, numbers(50, first=100))
    fewer = start(queue.query("a"))
    fewer.wait(lambda: queue.written() == 150, "the topic that is left is read")
    queue.output().assert_exactly_once(numbers(150))
    shared_program.get().wait_said(
        f"100 record(s) are not in the replayed batch (unsubscribed): {more}-0 offsets 0 to 99"
    )
    other = start(queue.query("b", options={"subscribe": more}))
    other.wait(lambda: queue.written() == 250, "another query gets the records that were released")
    queue.output().assert_exactly_once(numbers(150) + numbers(100, first=1_000))


def test_a_checkpoint_that_runs_twice_fences_the_older_query(orders, job, start, tmp_path):
    """A copy of a checkpoint is started while its query is in mid-batch: the older query fails by name, the copy
    replays the batch and goes on, nothing is lost."""
    queue = job(orders, maxOffsetsPerTrigger=40)
    first = start(queue.query("a", hold=("50",))).wait_held("50")
    copy = tmp_path / "copy"
    shutil.copytree(first.spec.checkpoint_path, copy)
    # In one session Spark itself stops the older run of a query id; on two hosts, which this stands for, nobody does.
    (copy / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')
    second = start(queue.query("copy", checkpoint=str(copy)))
    second.wait(lambda: describe(queue).lag() == 0, "all is completed")
    first.spec.release()
    fenced = first.wait_over().error()
    assert "FencedMemberEpoch" in fenced and "checkpoint" in fenced
    assert not second.over()
    queue.output().assert_at_least_once(numbers(100))
    assert queue.output().of("copy").values() == dict.fromkeys(numbers(60, first=40), 1)


@pytest.mark.slow
def test_a_rolled_back_checkpoint_is_refused_and_loses_no_record(kafka, orders, job, start, tmp_path):
    queue = job(orders, maxOffsetsPerTrigger=40)
    first = start(queue.query("a", trigger="available_now")).wait_over()
    backup = tmp_path / "backup"
    shutil.copytree(first.spec.checkpoint_path, backup)
    kafka.produce(orders, numbers(50, first=100))
    start(queue.query("a", trigger="available_now")).wait_over()
    kafka.produce(orders, numbers(50, first=150))
    start(queue.query("a", hold=("160",))).wait_held("160").stop()  # a plan that was used and is not completed
    rolled_back = start(queue.query("rolled", checkpoint=str(backup), trigger="available_now")).wait_over()
    assert "StalePlan" in rolled_back.error() and "rolled back" in rolled_back.error()
    start(queue.query("a", trigger="available_now")).wait_over()
    queue.output().assert_exactly_once(numbers(200))
