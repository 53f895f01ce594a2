"""The membership of a ShareConsumer in its group. It finds or starts the coordinator, and joins when the first records
are requested.

Rule: a consumer is one member for its whole life. A new subscription is another join of the same member under the next
epoch, so the member keeps its records. Leaving releases them. So a consumer without a subscription stays a member,
without partitions, until it holds no record or the locks have ended. No other process knows the member's id. So if a
session is fenced, a later join of this object fenced it: one that took its place, or one whose reply was lost, after
which the member joins again."""

from __future__ import annotations

import logging
import threading
import uuid

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession, RequestOf
from coordinator.protocol.errors import FencedMemberEpoch, UnknownMemberId
from coordinator.protocol.messages import Reply
from coordinator.protocol.repeated_lines import LogOnce
from share_consumer.metrics import Metrics
from share_consumer.options import ConsumerOptions
from share_source.application import program_name

Joins = tuple[int, int] | None
"""Identifies a join of a member: its epoch, and how often it came back after a lapse. None before the first."""
PATTERN = "^"
"""A subscription of one name that begins with this character is a regular expression, as in librdkafka's consumers."""

_log = logging.getLogger(__name__)


class Membership:
    """The session of a consumer. Thread-safe. ``session`` makes the first connection. ``metrics``: the consumer's."""

    def __init__(self, options: ConsumerOptions) -> None:
        self.member_id = uuid.uuid4().hex
        self._options, self.metrics = options, Metrics()
        self._changing = threading.Lock()
        self._client: CoordinatorClient | None = None
        self._session: MemberSession | None = None
        self._topics: tuple[str, ...] = ()
        self._once = LogOnce(_log)
        self._closed = False

    @property
    def joined(self) -> MemberSession | None:
        return self._session

    @property
    def joins(self) -> Joins:
        session = self._session
        return None if session is None else (session.member_epoch, session.rejoins)

    @property
    def lives_until_s(self) -> float:
        """The session can't lapse before this time, in monotonic seconds."""
        return 0.0 if self._session is None else self._session.lives_until_s

    def session(self, topics: tuple[str, ...]) -> MemberSession:
        """Returns the session of this subscription, and joins if needed. Raises ShareGroupError if the coordinator
        can't be reached or started, or refuses the join."""
        with self._changing:
            return self._current(topics)

    def call(self, request_of: RequestOf[Reply]) -> Reply:
        """Returns the reply to a member's request. A request that a later join overtakes is built and sent again under
        the later epoch. Raises as :meth:`MemberSession.call`."""
        if (session := self._session) is None:
            raise UnknownMemberId(member_id=self.member_id, group_id=self._options.group_id)
        try:
            return session.call(request_of)
        except FencedMemberEpoch:
            with self._changing:
                session = self._current(self._topics)
            return session.call(request_of)

    def _current(self, topics: tuple[str, ...]) -> MemberSession:
        if self._closed:
            raise UnknownMemberId(member_id=self.member_id, group_id=self._options.group_id)
        if self._session is None or self._topics != topics or self._session.fenced:
            if self._client is None:
                options = self._options
                servers, configs = options.bootstrap_servers, options.coordinator_configs
                self._client = CoordinatorClient.connect(servers, options.kafka_config, configs=configs)
            joined = self._join(self._client, topics)
            self._tell_of_missing(joined.joined.missing)
            if self._session is not None:
                self._session.close()
            self._session, self._topics = joined, topics
        return self._session

    def end_retries(self, in_s: float) -> None:
        """From ``in_s`` seconds on, do not retry failed requests to the coordinator."""
        if self._client is not None:
            self._client.end_retries(in_s)

    def leave(self) -> None:
        """Leave the group, which releases the records that the consumer still holds. ``session`` joins it again."""
        with self._changing:
            if self._session is not None:
                self._session.close(leave=True)
                self._session, self._topics = None, ()

    def close(self) -> None:
        """Leave the group, and refuse to join again."""
        with self._changing:
            self._closed = True
            if self._session is not None:
                self._session.close(leave=True)
            if self._client is not None:
                self._client.close()

    def _tell_of_missing(self, topics: tuple[str, ...]) -> None:
        for topic in topics:
            if self._once.changes(topic, True):
                _log.warning(
                    "share group %s: topic %s, to which this ShareConsumer subscribes, does not exist, or may not be "
                    "seen: no records come from it until it does. Correct the name, or create it",
                    *(self._options.group_id, topic),
                )

    def _join(self, client: CoordinatorClient, topics: tuple[str, ...]) -> MemberSession:
        pattern = topics[0] if len(topics) == 1 and topics[0].startswith(PATTERN) else None
        return MemberSession(
            client,
            self._options.group_id,
            self.member_id,
            query=False,
            topics=() if pattern else topics,
            topic_pattern=pattern,
            configs=self._options.group_configs,
            member_name=self._options.member_name,
            client_id=self._options.kafka_config.get("client.id", "") or program_name(),
            idle_after_s=self._options.max_poll_interval_ms / 1000 if topics else 0.0,
            lock_s=0.0 if self._session is None else self._session.lock_s,
            leaves_when_idle=not topics,
            heard=self.metrics.heartbeat,
        )
