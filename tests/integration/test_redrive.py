"""Redrive on a real broker: which dead letters go back, where to, how often, and what is said of the others."""

from __future__ import annotations

import json
import re

import pytest

from coordinator.dead_letters.record_format import DeadLetterRecord, Disposition, Origin, dead_letter
from coordinator.protocol.errors import ConfigOutOfBounds, TopicNotWritten, UnknownTopic
from coordinator.protocol.option_errors import MissingOption, RefusedOption
from share_sink.errors import RedriveChanged, RedriveIntoItself, RedriveStopped, RedriveTargetMissing
from share_sink.redrive.dlq_reader import REDRIVEN_FROM, REDRIVES
from share_sink.redrive.report import Sent
from sharegroup import redrive
from sharegroup.__main__ import run
from tests.support.kafka_log import messages_of

pytestmark = pytest.mark.broker

REASON = "no such customer"


@pytest.fixture
def world(kafka, topic):
    return World(kafka, topic)


class World:
    """A topic of two partitions, its dead letters, and what lies in them."""

    def __init__(self, kafka, topic) -> None:
        self.kafka = kafka
        self.orders, self.dlq = topic("orders", 2), topic("dlq", 2)
        self.options = {"kafka.bootstrap.servers": kafka.bootstrap}

    def dead(self, offset: int, *, partition: int = 0, of: str = "", **more) -> DeadLetterRecord:
        """The dead letter of a record, with which it came."""
        said = {"message": REASON, "key": b"k%d" % offset, "value": b"v%d" % offset, **more}
        group, disposition = said.pop("group", "billing"), said.pop("disposition", Disposition.REJECTED)
        return dead_letter(
            Origin(of or self.orders, partition, offset, group, said.pop("count", 1)), disposition, **said
        )

    def put(self, *letters: DeadLetterRecord, partition: int = 0) -> None:
        for each in letters:
            self.kafka.produce(self.dlq, [each.value], keys=[each.key], partition=partition, headers=[*each.headers])

    def redrive(self, **options):
        return redrive(self.dlq, options=self.options, **{"dry_run": False, **options})

    def mark(self, offset: int, *, partition: int = 0, times: int = 1) -> list:
        """The headers that a redrive adds to the record of the dead letter there."""
        return [(REDRIVES, str(times).encode()), (REDRIVEN_FROM, f"{self.dlq}-{partition}@{offset}".encode())]

    def read(self, name: str = "") -> list:
        """All records of a topic, by partition and offset."""
        return messages_of(self.kafka.bootstrap, name or self.orders)


def values(messages) -> list[bytes]:
    return sorted(message.value() for message in messages)


# --- whose record it is


def given(world, **groups):
    """Returns what groups were given, as their coordinator says it."""
    return lambda group_id: groups.get(group_id, {})


def test_only_records_that_their_group_was_given_are_sent(world, topic):
    payroll = topic("payroll")
    world.put(world.dead(1), world.dead(7, of=payroll), world.dead(2, group="another"))
    world.put(world.dead(9), world.dead(10), world.dead(0, partition=1))
    report = world.redrive(origins=given(world, billing={(world.orders, 0): 10}))
    assert (report.sent, report.other_topics, report.not_delivered) == (2, 2, 2)
    assert report.examples["other_topics"] == [f"{world.dlq}-0@1", f"{world.dlq}-0@2"]
    assert (values(world.read()), world.read(payroll)) == ([b"v1", b"v9"], [])


def test_a_redrive_writes_to_no_reserved_topic(world):
    reserved = ["share-group-state", "__consumer_offsets"]
    world.put(*[world.dead(1, of=name) for name in reserved])
    report = world.redrive()
    assert (report.sent, report.other_topics) == (0, 2)
    for name in reserved:
        with pytest.raises(TopicNotWritten, match=name):
            world.redrive(to=name)


# --- what was shown


def test_only_what_the_dry_run_has_shown_is_sent(world):
    world.put(world.dead(1), world.dead(2, message="other"))
    report = redrive(world.dlq, options=world.options)
    assert (report.dry_run, report.sent) == (True, 2)
    assert {*report.by_reason} == {Sent(world.orders, "rejected", REASON), Sent(world.orders, "rejected", "other")}
    shown = report.shown
    for other in ({"as_shown": shown, "where": {"offset": "1"}}, {"as_shown": "nonsense"}, {"as_shown": "0:x/1"}):
        with pytest.raises(RedriveChanged):
            world.redrive(**other)
    assert world.read() == []
    world.put(world.dead(3), world.dead(4, partition=1))
    report = world.redrive(as_shown=shown)
    assert (report.sent, report.came_after) == (2, 2)
    assert values(world.read()) == [b"v1", b"v2"]


# --- what is sent


def test_records_come_back_unchanged_to_their_partitions(world):
    headers = [("a", b"\x00\xff"), ("a", None), ("b", "ü".encode())]
    world.put(world.dead(7, partition=1, headers=headers), partition=1)
    world.put(world.dead(1, key=None), world.dead(2, value=None), world.dead(3, key=b"", value=b""))
    world.put(world.dead(4, key=None, value=None, headers=()), world.dead(5, headers=[(REDRIVES, b"9" * 5_000)]))
    assert world.redrive().sent == 6
    assert [(each.partition(), each.key(), each.value(), each.headers()) for each in world.read()] == [
        (0, None, b"v1", world.mark(0)),
        (0, b"k2", None, world.mark(1)),
        (0, b"", b"", world.mark(2)),
        (0, None, None, world.mark(3)),
        (0, b"k5", b"v5", world.mark(4)),
        (1, b"k7", b"v7", [*headers, *world.mark(0, partition=1)]),
    ]


def test_a_record_comes_back_with_its_own_timestamp(world):
    world.put(world.dead(1, timestamp_ms=1_767_225_600_000), world.dead(2), world.dead(3, timestamp_ms=0))
    assert world.redrive(keep_timestamp=True, rate=1_000).sent == 3
    times = {message.value(): message.timestamp()[1] for message in world.read()}
    assert times[b"v1"] == 1_767_225_600_000 < times[b"v2"]
    assert times[b"v3"] == 1, "librdkafka writes a timestamp of 0 as the time of sending"


def test_each_dead_letter_is_sent_or_counted_by_its_reason(world):
    broken, native = world.dead(9), world.dead(5)
    headers = [(name, b"x" if name.endswith(".offset") else value) for name, value in broken.headers]
    world.put(world.dead(1), world.dead(1), world.dead(1, count=2, value=b"again"), world.dead(1, group="other"))
    world.put(world.dead(2, copy=False), world.dead(3).headers_only())
    world.put(DeadLetterRecord(broken.origin, b"k", b"v", tuple(headers)))
    world.put(native._replace(headers=tuple(each for each in native.headers if not each[0].endswith("disposition"))))
    world.put(world.dead(1, partition=1, value=b"its neighbour"), partition=1)
    world.kafka.produce(world.dlq, ["a stranger"], partition=1)
    report = world.redrive()
    assert (report.read, report.sent, report.doubles) == (10, 3, 3)
    assert (report.without_record, report.not_dead_letters) == (2, 2)
    assert report.examples["without_record"] == [f"{world.dlq}-0@4", f"{world.dlq}-0@5"]
    assert sorted(report.examples["not_dead_letters"]) == [f"{world.dlq}-0@6", f"{world.dlq}-1@1"]
    kafkas_own = Sent(world.orders, "", REASON)
    assert report.by_reason == {Sent(world.orders, "rejected", REASON): 2, kafkas_own: 1}
    assert values(world.read()) == [b"its neighbour", b"v1", b"v5"]


def test_a_record_that_always_comes_back_is_sent_three_times(world):
    world.put(world.dead(0))
    for times in range(1, 4):
        assert world.redrive(where={} if times == 1 else {REDRIVES: str(times - 1)}).sent == 1
        back = world.read()[-1]
        assert back.headers() == world.mark(times - 1, times=times)
        world.put(world.dead(back.offset(), key=back.key(), value=back.value(), headers=back.headers()))
    report = world.redrive(where={REDRIVES: "3"})
    assert (report.sent, report.redriven_too_often) == (0, 1)
    assert report.examples["redriven_too_often"] == [f"{world.dlq}-0@3"]
    assert len(world.read()) == 3
    assert world.redrive(where={REDRIVES: "3"}, max_redrives=4).sent == 1


# --- where to


@pytest.mark.slow
def test_another_topic_gets_records_in_the_partitions_of_javas_producer(world, topic):
    other, java = topic("other", 4), topic("java", 4)
    world.put(*[world.dead(n) for n in range(8)])
    assert world.redrive(to=other).sent == 8
    keys = [f"k{n}" for n in range(8)]
    world.kafka.produce(java, keys, keys=keys, partitioner="murmur2_random")
    placed = {message.key(): message.partition() for message in world.read(other)}
    assert placed == {message.key(): message.partition() for message in world.read(java)}
    assert len(set(placed.values())) > 1
    assert world.read() == []


def test_a_record_whose_partition_is_missing_goes_by_its_key(world, topic):
    other = topic("other")
    world.put(*[world.dead(n, partition=9, key=b"same") for n in range(3)], world.dead(1, of=other, value=b"other"))
    assert world.redrive().sent == 4
    assert len({message.partition() for message in world.read()}) == 1
    assert values(world.read(other)) == [b"other"]


# --- which ones


def test_a_function_of_the_dead_letter_selects(world):
    world.put(*[world.dead(n, count=n, disposition=Disposition.DELIVERY_LIMIT) for n in range(1, 5)])
    seen = []

    def where(each):
        seen.append(each)
        return each.delivery_count > 2 and each.value != b"v4"

    report = world.redrive(where=where)
    assert (report.sent, report.not_selected) == (1, 3)
    assert values(world.read()) == [b"v3"]
    assert {each.disposition for each in seen} == {"delivery_limit"}
    assert [(each.partition, each.offset, each.origin_offset) for each in seen] == [(0, n, n + 1) for n in range(4)]
    assert all(each.timestamp_ms for each in seen)


def test_dead_letters_that_arrive_during_a_redrive_wait_for_the_next_call(world):
    world.put(world.dead(1))

    def where(each):
        world.put(world.dead(each.origin_offset + 1))
        return True

    assert world.redrive(where=where).read == 1
    assert len(world.read(world.dlq)) == 2


def test_an_empty_and_a_cut_log_are_read_to_their_ends(world):
    assert world.redrive().read == 0
    world.put(world.dead(1), world.dead(2))
    world.kafka.delete_records(world.dlq, 1)
    world.kafka.produce_transaction(world.dlq, ["aborted"], commit=False, partition=0)
    report = world.redrive()
    assert (report.read, report.sent) == (1, 1)


# --- what goes wrong


def test_missing_topics_and_wrong_options_are_refused_by_name(world, unique):
    world.put(world.dead(1), world.dead(2, of=unique("deleted")))
    with pytest.raises(UnknownTopic, match="nowhere"):
        redrive("nowhere", options=world.options)
    with pytest.raises(RedriveTargetMissing, match="nowhere"):
        world.redrive(to="nowhere")
    with pytest.raises(RedriveTargetMissing, match="deleted-"):
        redrive(world.dlq, options=world.options)
    with pytest.raises(RedriveIntoItself):
        world.redrive(to=world.dlq)
    with pytest.raises(MissingOption, match=r"kafka\.bootstrap\.servers"):
        redrive(world.dlq, options={})
    with pytest.raises(RefusedOption, match=r"kafka\.acks"):
        redrive(world.dlq, options={**world.options, "kafka.acks": "1"})
    with pytest.raises(ConfigOutOfBounds, match="max_redrives=0"):
        world.redrive(max_redrives=0)
    assert world.read() == []


def test_a_deleted_topic_stops_a_redrive_which_reports_the_sent_records(world, unique):
    world.put(world.dead(1), world.dead(2, of=unique("deleted")), world.dead(3))
    with pytest.raises(RedriveStopped, match=r"after 1 dead letter\(s\) were sent.*deleted-"):
        world.redrive()
    assert values(world.read()) == [b"v1"]
    assert world.redrive(where={"__dlq.errors.topic": world.orders}).sent == 2


def test_a_record_that_the_topic_refuses_stops_the_redrive_by_name(world, topic):
    small = topic("small", max_message_bytes=2_000)
    world.put(*[world.dead(n, value=bytes(5_000 if n == 2 else 10)) for n in range(4)])
    with pytest.raises(RedriveStopped, match=f"{world.dlq}-0@2") as stopped:
        world.redrive(to=small)
    report = stopped.value.report
    assert f"{world.dlq}-0@2" in report.unsent
    assert report.sent + len(report.unsent) <= 4
    assert len(world.read(small)) == report.sent == stopped.value.fields["sent"]


@pytest.mark.slow
def test_an_outage_stops_a_redrive_which_reports_the_sent_records(world):
    world.put(*[world.dead(n) for n in range(5)])
    options = {"kafka.bootstrap.servers": world.kafka.proxied_bootstrap, "kafka.message.timeout.ms": "2000"}

    def where(each):
        if each.offset == 3:
            world.kafka.proxy.cut()
        return True

    try:
        with pytest.raises(RedriveStopped, match=f"{world.dlq}-0@4") as stopped:
            redrive(world.dlq, where, options=options, dry_run=False)
    finally:
        world.kafka.proxy.heal()
    report = stopped.value.report
    assert report.sent + len(report.unsent) == 5
    assert len(world.read()) >= report.sent
    assert world.redrive(where=lambda each: f"{world.dlq}-0@{each.offset}" in report.unsent).sent == len(report.unsent)


# --- the command


def test_the_command_sends_only_with_execute(world, tmp_path, capsys):
    (tmp_path / "client.properties").write_text("client.id=tool\n")
    world.put(world.dead(1), world.dead(2), world.dead(2), world.dead(3, message="timeout"), world.dead(4, copy=False))
    command = ["dlq", "redrive", "--bootstrap-server", world.kafka.bootstrap, "--topic", world.dlq]
    command += ["--command-config", str(tmp_path / "client.properties"), "--where", f"message={REASON}"]
    assert run([*command, "--execute"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "5 read, 0 sent" in told
    assert "3 skipped: of no group with this dead letter topic that reads the topic it names" in told
    command += ["--any-origin"]
    assert run(command) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "5 read, 2 would be sent" in told
    shown = re.search(r"Use --execute --as-shown (\S+) ", told)[1]
    assert world.read() == []
    world.put(world.dead(5))
    assert run([*command, "--execute", "--as-shown", shown]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "5 read, 2 sent" in told
    assert values(world.read()) == [b"v1", b"v2"]


# --- lists and shows


ORIGIN = ("origin_topic", "origin_partition", "origin_offset", "group")


def test_dead_letters_are_listed_by_condition_or_shown_whole(world, capsys):
    world.put(
        world.dead(1), world.dead(2, group="shipping"), world.dead(3, value=b"\x00\xff" * 4, message="[red]bad\x1b")
    )
    common = ["--bootstrap-server", world.kafka.bootstrap, "--topic", world.dlq]
    assert run(["dlq", "list", *common, "--where", "group=billing", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [[each[name] for name in ORIGIN] for each in listed["dead_letters"]] == [
        [world.orders, 0, 1, "billing"],
        [world.orders, 0, 3, "billing"],
    ]
    assert run(["dlq", "list", *common, "--limit", "2"]) == 0
    table = capsys.readouterr().out
    assert "0@0" in table and "--limit shows more" in table and "@3" not in table

    assert run(["dlq", "show", *common, "--partition", "0", "--offset", "2"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "value: 00 ff 00 ff 00 ff 00 ff" in shown
    assert "key: k3" in shown
    assert "message: [red]bad\N{REPLACEMENT CHARACTER}" in shown
    assert "header __dlq.errors.offset: 3" in shown
    assert run(["dlq", "show", *common, "--partition", "0", "--offset", "2", "--max-bytes", "2"]) == 0
    assert "value: 00 ff … (8 bytes)" in capsys.readouterr().out
    for partition, offset in ((0, 3), (7, 0)):
        assert run(["dlq", "show", *common, "--partition", str(partition), "--offset", str(offset)]) == 1
        assert f"no dead letter at {world.dlq}-{partition}@{offset}" in capsys.readouterr().err
