"""What a way out is: the words of an error that say what to do, and a play that does what they say.

Rule: a play causes its error where a program or a person meets it, does what the sentence says and nothing else, and
then does again what was refused.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from pyspark.sql.streaming.datasource import ReadMaxRows

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers.admin_requests import AdminService
from sharegroup.demo.embedded_broker import EmbeddedBroker
from tests.bad_input.row import Place
from tests.support.fake_cluster import cluster_with_orders
from tests.support.listeners import Answer, listening
from tests.support.running_service import Running

Play = Callable[["Scene"], object]


@dataclass(frozen=True)
class Way:
    """The way out of an error. ``remedy``: the words of its sentence that the play does."""

    error: type[ShareGroupError]
    remedy: tuple[str, ...]
    play: Play


PLAYS: dict[type[ShareGroupError], Way] = {}
"""The plays, by the error that each begins with."""


def way_out(error: type[ShareGroupError], *remedy: str) -> Callable[[Play], Play]:
    """A decorator of the play that begins with ``error``."""

    def added(play: Play) -> Play:
        assert error not in PLAYS, error
        assert remedy, error
        PLAYS[error] = Way(error, remedy, play)
        return play

    return added


@dataclass
class Scene:
    """Where a play happens: a broker in memory with the topic ``orders``, an empty folder, and an environment that ends
    with the play."""

    way: Way
    broker: EmbeddedBroker
    place: Place
    patch: pytest.MonkeyPatch
    ending: ExitStack
    refusals: list[str] = field(default_factory=list)

    @contextmanager
    def refused(self) -> Iterator[None]:
        """A block that is refused with the way's error, and with its remedy in the sentence, whatever the exception is
        that the door raises."""
        with pytest.raises(Exception) as raised:
            yield
        found: Any = raised.value
        named = found if isinstance(found, ShareGroupError) else found.__cause__
        text = found.args[0].str() if isinstance(found, KafkaException) else str(found)
        assert type(named) is self.way.error, repr(found)
        self._heard(text)

    def coded(self, code: str) -> None:
        """The answer has Kafka's code of the error alone, as Kafka's answer to an acknowledgement has."""
        assert code == self.way.error.kafka_error
        self._heard(self.way.error.__doc__ or "")

    def told(self, text: str) -> None:
        """The text has the way's error, as a command or a reply to a request prints it."""
        assert f"{self.way.error.__name__}: " in text, text
        self._heard(text)

    def shown(self, page: str) -> None:
        """The page shows the way's error."""
        text = html.unescape(re.sub(r"<[^>]+>", " ", page))
        assert self.way.error.__name__ in text, text
        self._heard(text)

    def answering(self, answer: bytes) -> str:
        """The address of a listener that gives this answer to whatever it gets."""
        return self.ending.enter_context(listening(Answer, answer))

    @staticmethod
    def records(count: int) -> Any:
        """The limit of a batch, as Spark passes it."""
        return ReadMaxRows(count)

    def running(self, records: int = 10) -> Any:
        """A coordinator's service with the topic ``orders`` of that many records, and its administration."""
        cluster = cluster_with_orders(end=records)
        self.service = Running(self.place.folder / "state.db", cluster)
        self.ending.callback(self.service.close)
        stored = SimpleNamespace(stored_groups=list)
        self.service.admin = AdminService(self.service.runtime, cluster, stored, TopicDoubts())
        return self.service

    def _heard(self, text: str) -> None:
        sentence = " ".join(text.split())
        for words in self.way.remedy:
            assert words in sentence, sentence
        self.refusals.append(sentence)
