"""One group's dead letters, pass after pass: what is filed, what stays, and what the next pass is for. The log and the
dead letter topic are stood in for; the group is a real one."""

from collections import Counter
from types import SimpleNamespace

import pytest

from coordinator.dead_letters.producer import WriteResult, WriteStatus
from coordinator.dead_letters.record_format import parse_headers
from coordinator.dead_letters.source_records import AbsenceReason, Absent, SourceRecord
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused, GroupTakenOver
from coordinator.protocol.messages import Acknowledge, AcquireRecords
from coordinator.service.brokers import subscription, topic_doubts
from coordinator.service.dead_letters import builder, group_worker
from coordinator.service.dead_letters.group_worker import PassResult
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import acks, dead_letter_worker

REJECT = 3
PREFIX = "errors.deadletterqueue."
WRITTEN = WriteResult(WriteStatus.WRITTEN)
RETRIABLE = WriteResult(WriteStatus.RETRIABLE_FAILURE, "_MSG_TIMED_OUT")
PERMANENT = WriteResult(WriteStatus.PERMANENT_FAILURE, "TOPIC_AUTHORIZATION_FAILED")
UNWRITABLE = WriteResult(WriteStatus.PERMANENT_FAILURE, "INVALID_RECORD")


class Log:
    """Stands where SourceRecordReader does. ``absent``: why there is no record, by offset; ``unreadable`` offsets."""

    def __init__(self):
        self.absent = {}
        self.unreadable = set()
        self.away = False
        self.on_read = lambda: None

    def __call__(self, *_, **__):
        return self

    def read(self, topic, partition, offsets):
        if self.away:
            raise BrokerNotReachable(addresses="fake", timeout_ms=1, reason="_TRANSPORT")
        for offset in offsets:
            if offset in self.unreadable:
                raise BrokerRefused(addresses="fake", what="read", reason="_BAD_MSG")
            if offset in self.absent:
                yield Absent(offset, self.absent[offset])
            else:
                yield SourceRecord(offset, None, b"%d" % offset, (), 0)
        self.on_read()

    def close(self):
        pass


class Queue:
    """Stands where DeadLetterProducer does; ``fates`` by DLQ partition, or by source offset."""

    def __init__(self):
        self.letters = []
        self.fates = {}
        self.of_offset = {}
        self.asked = 0

    def __call__(self, *_, **__):
        return self

    def write(self, topic, partitions, letters):
        self.asked += len(letters)
        found = []
        for letter in letters:
            partition = letter.origin.partition % partitions
            fate = self.of_offset.get(letter.origin.offset) or self.fates.get(partition, WRITTEN)
            found.append(fate)
            if fate.status is WriteStatus.WRITTEN:
                self.letters.append(letter)
        return found

    def close(self):
        pass

    def values(self):
        return {parse_headers(letter.headers).origin[1:3]: letter.value for letter in self.letters}


@pytest.fixture
def cluster():
    found = FakeCluster()
    found.add("orders", partitions=2, end=10)
    found.add("dlq", partitions=2)
    return found


@pytest.fixture
def log(monkeypatch):
    standing_in = Log()
    monkeypatch.setattr(builder, "SourceRecordReader", standing_in)
    monkeypatch.setattr(subscription, "PAUSES_S", (0.0,))
    return standing_in


@pytest.fixture
def queue(monkeypatch):
    standing_in = Queue()
    monkeypatch.setattr(group_worker, "DeadLetterProducer", standing_in)
    return standing_in


@pytest.fixture
def group(running, log, queue):
    return running


@pytest.fixture
def worker(group):
    return dead_letter_worker(group, doubts=topic_doubts.TopicDoubts(60.0))


def reject(group, **configs):
    """A consumer rejects all that there is: ten records of each of two partitions."""
    texts = {"topic.name": "dlq", **{key.replace("_", "."): value for key, value in configs.items()}}
    configs = {PREFIX + key: value for key, value in texts.items()}
    group.join(query=False, starting_offsets="earliest", configs=configs)
    got = group.ask(AcquireRecords, max_records=100)
    for part in got.partitions:
        ((first, last, count),) = part.ranges
        rejected = acks(part.topic_id, first, last, REJECT, count, part.partition)
        assert not group.ask(Acknowledge, partitions=rejected).errors
    assert waiting(group) == {0: 10, 1: 10}


def waiting(group):
    return {where[1]: p.archiving for where, p in group.partitions().items()}


def test_a_pass_writes_and_files_everything(group, worker, queue):
    reject(group)
    assert worker.work() is PassResult.DONE
    assert waiting(group) == {0: 0, 1: 0}
    assert queue.values() == {(p, n): b"%d" % n for p in (0, 1) for n in range(10)}


def test_small_looks_and_chunks_write_each_dead_letter_once(group, worker, queue, monkeypatch):
    monkeypatch.setattr(group_worker, "DEAD_LETTERS_IN_A_CHUNK", 3)
    monkeypatch.setattr(group_worker.group_backlog, "MOST_RECORDS", 7)
    reject(group)
    assert worker.work() is PassResult.DONE
    assert set(Counter(letter.origin for letter in queue.letters).values()) == {1}
    assert len(queue.letters) == 20


def test_dead_letters_with_retriable_failures_are_written_by_a_later_pass(group, worker, queue):
    reject(group)
    queue.fates = {0: RETRIABLE, 1: RETRIABLE}
    assert (worker.work(), worker.attempts) == (PassResult.WAITING, 1)
    assert (worker.work(), worker.attempts) == (PassResult.WAITING, 2)
    assert waiting(group) == {0: 10, 1: 10}
    queue.fates = {}
    assert (worker.work(), worker.attempts) == (PassResult.DONE, 0)
    assert len(queue.letters) == 20


def test_after_a_failure_only_a_few_dead_letters_are_tried(group, worker, queue, monkeypatch):
    monkeypatch.setattr(group_worker, "DEAD_LETTERS_IN_A_PROBE", 2)
    reject(group)
    queue.fates = {0: RETRIABLE, 1: RETRIABLE}
    worker.work()
    queue.asked = 0
    worker.work()
    assert queue.asked == 4  # two of each partition of the queue


@pytest.mark.parametrize("copy", ["true", "false"])
def test_a_pass_writes_no_more_to_a_partition_that_fails(group, worker, queue, monkeypatch, copy):
    monkeypatch.setattr(group_worker, "DEAD_LETTERS_IN_A_CHUNK", 2)
    monkeypatch.setattr(group_worker.group_backlog, "MOST_RECORDS", 5)
    reject(group, copy_record_enable=copy)
    queue.fates = {0: RETRIABLE}
    assert worker.work() is PassResult.WAITING
    assert (queue.asked, waiting(group)) == (12, {0: 10, 1: 0})


FAULTS = {
    "an unwritable one is held and delays no other": ({"of_offset": {4: UNWRITABLE}}, PassResult.BLOCKED, (1, 1), 18),
    "permanent failures are archived": (
        {"fates": {0: PERMANENT}, "archives": True},
        PassResult.DONE,
        (0, 0),
        10,
    ),
    "a source that can't be read gives nothing up": ({"away": True}, PassResult.WAITING, (10, 10), 0),
    "retriable ones are awaited": (
        {"fates": {0: RETRIABLE, 1: PERMANENT}},
        PassResult.WAITING,
        (10, 10),
        0,
    ),
}


@pytest.mark.parametrize(("faults", "result", "waits", "written"), FAULTS.values(), ids=FAULTS)
def test_what_a_fault_leaves_to_the_next_pass(group, worker, queue, log, monkeypatch, faults, result, waits, written):
    monkeypatch.setattr(group_worker, "DEAD_LETTERS_IN_A_CHUNK", 2)
    reject(group, on_failure="archive" if faults.get("archives") else "hold")
    for name, value in faults.items():
        setattr(queue if hasattr(queue, name) else log, name, value)
    assert worker.work() is result
    assert (waiting(group), len(queue.letters)) == (dict(enumerate(waits)), written)


def test_on_failure_archive_archives_after_as_many_attempts_as_kafka(group, worker, queue):
    reject(group, on_failure="archive")
    queue.fates = {0: RETRIABLE}
    for _ in range(4):
        assert worker.work() is PassResult.WAITING
    assert waiting(group) == {0: 10, 1: 0}
    assert worker.work() is PassResult.DONE
    assert waiting(group) == {0: 0, 1: 0}


def test_an_unreadable_source_record_leaves_headers_only_and_others_whole(group, worker, queue, log):
    reject(group)
    log.unreadable = {3}
    assert worker.work() is PassResult.DONE
    values = queue.values()
    assert (values.pop((0, 3)), values.pop((1, 3))) == (None, None)
    assert values == {(p, n): b"%d" % n for p in (0, 1) for n in range(10) if n != 3}


def test_a_gap_gets_no_dead_letter_and_a_lost_record_headers_only(group, worker, queue, log):
    reject(group)
    log.absent = {1: AbsenceReason.NEVER, 2: AbsenceReason.GONE}
    assert worker.work() is PassResult.DONE
    assert (0, 1) not in queue.values()
    assert queue.values()[0, 2] is None


def test_a_log_that_ends_too_soon_is_waited_for_a_while(group, worker, queue, log, monkeypatch):
    reject(group)
    log.absent = {9: AbsenceReason.PAST_END}
    assert worker.work() is PassResult.WAITING
    assert waiting(group) == {0: 1, 1: 1}
    monkeypatch.setattr(builder, "PAST_END_S", 0.0)
    assert worker.work() is PassResult.DONE
    assert queue.values()[0, 9] is None


def test_the_wait_for_a_short_log_restarts_once_the_log_is_whole(group, worker, queue, log, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(builder, "time", SimpleNamespace(monotonic=lambda: now[0]))
    reject(group)
    log.absent = {9: AbsenceReason.PAST_END}
    worker.work()
    log.absent, queue.of_offset = {}, {9: RETRIABLE}
    worker.work()  # it was read, and not written
    now[0] += builder.PAST_END_S + 1
    log.absent, queue.of_offset = {9: AbsenceReason.PAST_END}, {}
    assert worker.work() is PassResult.WAITING
    assert waiting(group) == {0: 1, 1: 1}


def test_a_topic_recreated_during_the_read_gets_dead_letters_without_values(group, worker, queue, log, cluster):
    reject(group)

    def remade():
        if "orders" in cluster.found:
            cluster.delete("orders")
            cluster.add("orders", partitions=2)

    log.on_read = remade
    assert worker.work() is PassResult.DONE
    assert set(queue.values().values()) == {None}


def test_a_recreated_topic_decides_nothing_about_the_old_topics_offsets(group, worker, queue, log, cluster):
    reject(group)
    cluster.delete("orders")
    cluster.add("orders", partitions=2)
    log.absent = dict.fromkeys(range(10), AbsenceReason.NEVER)
    assert worker.work() is PassResult.DONE
    assert len(queue.letters) == 20


@pytest.mark.parametrize("since", ["before the pass", "the read"])
def test_a_topic_that_is_missing_for_a_moment_loses_no_copy(group, worker, queue, log, cluster, since):
    reject(group)
    hidden = cluster.found["orders"]
    if since == "the read":
        log.on_read = lambda: cluster.found.pop("orders", None)
    else:
        del cluster.found["orders"]
    assert worker.work() is PassResult.WAITING
    assert (queue.letters, waiting(group)) == ([], {0: 10, 1: 10})
    log.on_read = lambda: None
    cluster.found["orders"] = hidden
    assert worker.work() is PassResult.DONE
    assert queue.values() == {(p, n): b"%d" % n for p in (0, 1) for n in range(10)}


def test_a_topic_missing_for_a_minute_leaves_headers_only(group, worker, queue, cluster, monkeypatch):
    now_s = [1_000.0]
    monkeypatch.setattr(topic_doubts, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    reject(group)
    cluster.delete("orders")
    assert worker.work() is PassResult.WAITING
    now_s[0] += 60
    assert worker.work() is PassResult.DONE
    assert set(queue.values().values()) == {None}


def test_a_missing_dead_letter_topic_blocks_the_worker_until_its_creation(group, worker, cluster, queue):
    reject(group)
    cluster.delete("dlq")
    assert worker.work() is PassResult.BLOCKED
    cluster.add("dlq")
    assert worker.work() is PassResult.DONE
    assert len(queue.letters) == 20


def test_brokers_that_are_away_are_waited_for(group, worker, cluster):
    reject(group)
    cluster.unreachable = True
    assert worker.work() is PassResult.WAITING


def test_the_worker_ends_for_a_group_that_another_process_owns(group, worker, monkeypatch):
    reject(group)

    def taken(*_, **__):
        raise GroupTakenOver(group_id="billing", owner="another")

    monkeypatch.setattr(group.runtime, "call", taken)
    assert worker.work() is PassResult.GROUP_GONE


def test_the_worker_ends_for_a_missing_group(group):
    assert dead_letter_worker(group, "never").work() is PassResult.GROUP_GONE
