"""Which version of Kafka a test's broker has, and what brokers of that version can be told.

The rule: all that a test has to know of an older broker is here: the configuration keys that it does not know, and the
tests that need more than it has.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.imports import ROOT
from tools.bootstrap import KAFKA_VERSION

ENVIRONMENT = "SHAREGROUP_TEST_KAFKA"
"""The version of all brokers of a run; `make test-broker KAFKA=…` sets it."""

# What a test can't wait for with Kafka's defaults, or what needs more than one broker with them.
BROKER_CONFIG = {
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    # transactions that nobody ends are ended soon after their time, not within ten seconds
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    # a killed broker's registration has to end before the next start is let in (9000)
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # an idle cluster's controller writes a record each half second (500): a third of an idle broker's CPU time
    "metadata.max.idle.interval.ms": "30000",
    # deletion and compaction within a second, not within minutes
    "log.retention.check.interval.ms": "300",
    # a test that writes a record with an old timestamp reads it back; one that is about retention sets its topic's
    "log.retention.ms": "-1",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.segment.delete.delay.ms": "500",
    "message.max.bytes": "10485760",
}

# Brokers from 4.2 on, which have native share groups that are switched on by default.
SHARE_GROUPS_CONFIG = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    # locks that end within seconds, and members that get their partitions at once
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
}

NO_SHARE_GROUPS = "brokers before 4.2 have no native share groups to compare with"
NO_FORMATTER = "brokers before 4.1 have no ShareGroupStateMessageFormatter that reads the state's form of today"
NO_LIMIT_OF_A_GROUP = "brokers before 4.3 have no group config share.delivery.count.limit"
NEEDED = {
    "tests/same_program/": ("4.2", NO_SHARE_GROUPS),
    "[redelivery_to_the_limit]": ("4.3", NO_LIMIT_OF_A_GROUP),
    "[a_limit_of_": ("4.3", NO_LIMIT_OF_A_GROUP),
    "tests/integration/test_groups_command.py": ("4.2", NO_SHARE_GROUPS),
    "::test_kafkas_formatter_prints_the_state_that_the_group_has": ("4.1", NO_FORMATTER),
    "::test_a_native_share_group_with_the_same_history_ends_alike": ("4.2", NO_SHARE_GROUPS),
    "::test_consume_prints_records_as_kafkas_own_tool_does": ("4.2", NO_SHARE_GROUPS),
    "::test_a_measurement_has_the_columns_of_kafkas_own_tool": ("4.2", NO_SHARE_GROUPS),
}
"""Part of a test's name -> the first release that has what the test needs, and what that is."""

LOG4J2 = """\
<Configuration status="error">
  <Appenders><Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} %p %c{1}: %m%n"/></Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""

LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""


def chosen_version() -> str:
    """The version of a broker that the test did not choose itself."""
    return os.environ.get(ENVIRONMENT) or KAFKA_VERSION


def jars_of(version: str) -> Path:
    """Where tools/bootstrap.py puts the jars of that broker."""
    return ROOT / ".build" / f"kafka-{version}"


def is_at_least(version: str, release: str) -> bool:
    """Whether the version is of that release, as 4.2, or of a later one."""
    first = [int(part) for part in release.split(".")]
    return [int(part) for part in version.split(".")][: len(first)] >= first


def broker_config(version: str) -> dict[str, str]:
    """The configuration that brokers of the version take; an older one refuses protocols that it has not."""
    config = dict(BROKER_CONFIG)
    if is_at_least(version, "4.2"):
        config.update(SHARE_GROUPS_CONFIG)
    if is_at_least(version, "4.3"):
        config["group.share.assignment.interval.ms"] = "0"
    return config


def missing_for(test: str, version: str) -> str:
    """Returns what the test needs and brokers of the version lack; empty: nothing."""
    for part, (release, reason) in NEEDED.items():
        if part in test and not is_at_least(version, release):
            return reason
    return ""


def write_logging(version: str, directory: Path) -> str:
    """Writes the file with the broker's log levels. Returns the Java option that names the file."""
    if is_at_least(version, "4.0"):
        (directory / "log4j2.xml").write_text(LOG4J2)
        return f"-Dlog4j2.configurationFile={directory / 'log4j2.xml'}"
    (directory / "log4j.properties").write_text(LOG4J)
    return f"-Dlog4j.configuration=file:{directory / 'log4j.properties'}"
