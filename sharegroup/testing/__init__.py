"""Test a program against a Kafka broker in memory: a query, a sink, a ShareConsumer (docs/do/test-your-query.md).

Rule: a test needs no Kafka, no Docker and no option of its own, and leaves no process, port or file. What is told of a
record is read from the group's state and from the topics, and is never a guess."""

from sharegroup.testing.brokers import broker, produce
from sharegroup.testing.dead_letters import dead_letters
from sharegroup.testing.outcomes import Outcome, outcomes
from sharegroup.testing.records import Record
from sharegroup.testing.waiting import SOON, wait_until_done

__all__ = ["SOON", "Outcome", "Record", "broker", "dead_letters", "outcomes", "produce", "wait_until_done"]
