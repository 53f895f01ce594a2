"""keep_running starts a query again after its code has raised; what a person must mend, or has stopped, it leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import tenacity.nap
from pyspark.errors import AnalysisException, StreamingQueryException

from coordinator.protocol.errors import by_name
from share_source.driver.kept_query import LONGEST_PAUSE_S, MAX_RESTARTS, WAITS
from share_source.errors import CheckpointChanged
from sharegroup import keep_running

SOURCE = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {cause} SQLSTATE: XXKST"
BY_READER = "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python data source perform latestOffset: "
CODE = SOURCE.format(cause='Traceback (most recent call last):\n  File "bill.py", line 3\nValueError: 9 is poison\n')


def failure(text: str = CODE) -> StreamingQueryException:
    return StreamingQueryException(message=text)


def named(name: str) -> StreamingQueryException:
    module = "coordinator.protocol.errors"
    return failure(SOURCE.format(cause=f"{BY_READER}{module}.{name}: what is wrong."))


@dataclass
class Query:
    """A start of a query that ends with this error, or without one, after batches of so many rows."""

    error: BaseException | None = None
    rows: tuple[int, ...] = ()
    id: str = "one checkpoint"
    name: str | None = "billing"
    is_stopped: bool = False

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        if self.error is not None:
            raise self.error

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802 - Spark's name
        return [SimpleNamespace(numInputRows=each) for each in self.rows]

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        return self.recentProgress[-1] if self.rows else None

    def stop(self) -> None:
        self.is_stopped = True


@dataclass
class Program:
    """What ``start`` does at each call, in turn; and the pauses between the calls."""

    pauses: list[float] = field(default_factory=list)
    starts: int = 0

    def does(self, calls: Iterator[Query | BaseException]) -> Callable[[], Any]:
        def start() -> Query:
            self.starts += 1
            now = next(calls)
            if isinstance(now, BaseException):
                raise now
            return now

        return start

    def keeps(self, *calls: Query | BaseException, **limits: Any) -> Any:
        return keep_running(self.does(iter(calls)), **limits)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    made = Program()
    monkeypatch.setattr(tenacity.nap, "time", SimpleNamespace(sleep=made.pauses.append))
    return made


AWAY = ("OutageTooLong", "CoordinatorUnreachable", "ReadTimeout", "BrokerNotReachable")


@pytest.mark.parametrize(
    ("calls", "limits"),
    [
        pytest.param([Query()], {}, id="stopped, or complete"),
        pytest.param([Query(failure()), Query(failure()), Query()], {}, id="its code raises"),
        pytest.param(
            [*[Query(failure(), rows=(1,)), Query(failure())] * 5, Query()], {"max_restarts": 2}, id="progress"
        ),
        *(
            pytest.param([*[Query(named(name))] * 5, Query()], {"max_restarts": 0}, id=f"no limit: {name}")
            for name in AWAY
        ),
    ],
)
def test_a_query_is_started_again_until_it_ends_well(program: Program, calls: list[Query], limits: Any) -> None:
    assert program.keeps(*calls, **limits) is calls[-1]
    assert program.starts == len(calls)


def test_the_pauses_grow_until_a_batch_with_a_record_is_completed(program: Program) -> None:
    program.keeps(*[Query(failure())] * 9, Query(failure(), rows=(7, 0)), Query(failure(), rows=(0,)), Query())
    growing = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert program.pauses == pytest.approx([*growing, 0.1, 0.2])


def test_without_progress_the_last_error_is_raised_after_the_limit(program: Program) -> None:
    last = failure()
    with pytest.raises(StreamingQueryException) as raised:
        program.keeps(*[Query(failure(), rows=(0,))] * MAX_RESTARTS, Query(last, rows=(0,)))
    assert raised.value is last
    assert program.starts == 1 + MAX_RESTARTS


@pytest.mark.parametrize(
    "name",
    [
        *("FencedMemberEpoch", "BatchReclaimed", "ForeignCheckpoint", "StalePlan", "UnknownOption", "TooManyRejects"),
        *("TopicNotAuthorized", "BrokerSecurityFailed", "DeadLetterTopicMissing", "ErrorOfANewerVersion"),
    ],
)
def test_what_a_person_must_mend_is_raised_at_once(program: Program, name: str) -> None:
    with pytest.raises(StreamingQueryException, match=name):
        program.keeps(Query(named(name)), Query())
    assert program.starts == 1


@pytest.mark.parametrize("name", ["DataLoss", "RecordsGone", "StaleReceipts", "SinkOutdated"])
def test_what_the_next_start_may_not_meet_is_started_again(program: Program, name: str) -> None:
    program.keeps(Query(named(name)), Query())
    with pytest.raises(StreamingQueryException):
        program.keeps(Query(named(name)), Query(), max_restarts=0)


def test_each_error_that_waits_names_brokers_or_a_coordinator() -> None:
    """Whoever adds an error that a client sends again decides here that a query waits for it without a limit."""
    modules = ("coordinator.protocol.errors", "coordinator.protocol.host_errors", "share_source.errors")
    known = [cls for cls in by_name().values() if cls.__module__ in modules]
    assert {cls.__name__ for cls in known if cls.retriable or issubclass(cls, WAITS)} == {
        *("BrokerClosesConnection", "BrokerHostUnknown", "BrokerNotReachable", "BrokerSpeaksOtherwise"),
        *("CoordinatorNotAvailable", "CoordinatorOverloaded", "CoordinatorUnreachable", "MembersNotKnown"),
        *("NotCoordinator", "OutageTooLong", "OwnedElsewhere", "OwnerMissing", "ReadTimeout", "RequestTooLate"),
        *("StateBatchUnreadable", "StateTopicMissing", "StateTransactionOpen"),
    }


@pytest.mark.parametrize("error", [AnalysisException(message="no such column"), ConnectionRefusedError()])
def test_an_error_of_start_or_of_the_session_is_raised(program: Program, error: Exception) -> None:
    with pytest.raises(type(error)):
        program.keeps(error)
    with pytest.raises(type(error)):
        program.keeps(Query(failure()), error, Query())
    with pytest.raises(type(error)):
        program.keeps(Query(error), Query())
    assert program.starts == 4


def test_brokers_that_are_away_at_a_restart_are_waited_for(program: Program) -> None:
    """load() asks the brokers; at the first start their address may be wrong."""
    away = AnalysisException(message=f"{BY_READER}coordinator.protocol.errors.BrokerNotReachable: no broker.")
    program.keeps(Query(failure()), away, away, Query(), max_restarts=1)
    with pytest.raises(AnalysisException):
        program.keeps(away, Query())


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_a_signal_ends_the_program(program: Program, signal: type[BaseException]) -> None:
    with pytest.raises(signal):
        program.keeps(Query(failure()), Query(signal()), Query())
    assert program.starts == 2


def test_a_query_with_another_checkpoint_is_stopped_and_refused(program: Program) -> None:
    other = Query(id="a temporary one")
    with pytest.raises(CheckpointChanged, match="Let the function set the same checkpointLocation"):
        program.keeps(Query(failure()), other, Query())
    assert other.is_stopped
    program.keeps(Query(failure()), Query())


@pytest.mark.parametrize(("given", "said"), [(Query(), "writer.start"), (lambda: None, "a NoneType")])
def test_what_starts_no_query_is_refused(given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        keep_running(given)


@pytest.mark.parametrize("given", ["5", -1, None, float("nan"), True])
def test_a_number_of_restarts_that_is_none_is_refused_before_a_start(given: Any) -> None:
    with pytest.raises(TypeError, match="max_restarts is a number of restarts"):
        keep_running(lambda: pytest.fail("it was started"), max_restarts=given)


def test_a_restart_is_one_line_with_its_cause(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        program.keeps(Query(failure()), Query())
    (line,) = caplog.messages
    assert line == (
        "query billing: ValueError: 9 is poison - it starts again in 0.1 s (restart 1 since it last completed a batch)"
    )
