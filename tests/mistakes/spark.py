"""The order in which Spark and a query call the source and the sink."""

from __future__ import annotations

from typing import Any

from coordinator.protocol.messages import OutcomesStaged
from share_source.driver.logged_end import LoggedEnd
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, SmallWorld, mistake
from tests.protocol.members import Query
from tests.protocol.setting import Budget, Setting
from tests.protocol.worlds import ONE_RECORD, ROLLS, WITHOUT_START


@mistake(rules.COMPLETION_AFTER_COMMIT, explorer=(SmallWorld(ONE_RECORD, Budget(1, crashes=1)),))
def complete_when_the_sink_has_written(patch: Patch) -> None:
    """Instead of with the next ``latestOffset``: commits/N is not there yet."""
    right = Query.wrote

    def wrote(self: Query, log_start: int, setting: Setting, topic: int = 0) -> Query:
        after = right(self, log_start, setting, topic)
        return after._replace(phase="complete") if after.up else after

    patch.setattr(Query, "wrote", wrote)


@mistake(rules.COMPLETION_AFTER_COMMIT, explorer=(SmallWorld(ONE_RECORD, Budget(1, crashes=1)),))
def commit_before_the_sink_wrote(patch: Patch) -> None:
    right = Query.goes_on

    def goes_on(self: Query, log_start: int, setting: Setting, topic: int = 0) -> Query:
        if self.phase != "write":
            return right(self, log_start, setting, topic)
        if self.commits < len(self.offsets):
            return self._replace(commits=self.commits + 1)
        after = self.wrote(log_start, setting, topic)
        return after._replace(phase="ask", batch=0) if after.up else after

    patch.setattr(Query, "goes_on", goes_on)


@mistake(rules.MEMBER_FROM_END, explorer=(SmallWorld(ONE_RECORD, Budget(1, crashes=1)),))
def take_the_member_from_start(patch: Patch) -> None:
    """A new process of a batch that is replayed has another initial offset."""
    right = Query.started

    def started(self: Query) -> Query:
        after = right(self)
        return after._replace(member=f"{self.name}{after.processes}") if len(self.offsets) == 1 else after

    patch.setattr(Query, "started", started)


@mistake(rules.ACKNOWLEDGE_THEN_WRITE, explorer=(SmallWorld(ROLLS, Budget(1, crashes=1)),))
def write_before_acknowledging(patch: Patch) -> None:
    """The query writes its output before it stages the outcomes."""
    right_decides, right_heard, right_wrote = Query.decides, Query.heard, Query.wrote

    def decides(self: Query, setting: Setting) -> list[Query]:
        return [decided._replace(phase="write") for decided in right_decides(self, setting)]

    def wrote(self: Query, log_start: int, setting: Setting, topic: int = 0) -> Query:
        after = right_wrote(self, log_start, setting, topic)
        return after._replace(phase="stage") if after.up and setting.sink else after

    def heard(self: Query, answer: Any, error: str, setting: Setting, plan_mode: str) -> Query:
        after = right_heard(self, answer, error, setting, plan_mode)
        return after._replace(phase="commit") if isinstance(answer, OutcomesStaged) else after

    for name, wrong in (("decides", decides), ("wrote", wrote), ("heard", heard)):
        patch.setattr(Query, name, wrong)


NOT_TOLD = "share_source/test_reader_without_start::test_a_reader_asked_before_it_knows_the_log_acknowledges_nothing"
AFTER_A_COMMIT = (
    "share_source/test_reader_without_start::TestContract::"
    "test_after_a_commit_the_next_process_completes_and_delivers_nothing_again"
)


@mistake(rules.LOG_IS_TOLD, explorer=(SmallWorld(WITHOUT_START, Budget(1, crashes=1)),))
def guess_that_the_last_batch_was_committed(patch: Patch) -> None:
    """Spark's wrapper for AvailableNow asks for an offset before it looks into its log: a reader that knows its member
    by other means takes this for a sign that the last batch was committed."""
    right = Query.knows_nothing

    def guesses(self: Query) -> Query:
        if not self.offsets:
            return right(self)
        end = (self.log_member, self.offsets[-1])
        return self._replace(member=self.log_member, phase="ask", told=(end, None, False))

    patch.setattr(Query, "knows_nothing", guesses)


@mistake(rules.LOG_IS_TOLD, tests=(NOT_TOLD,))
def go_on_though_the_log_was_not_told(patch: Patch) -> None:
    patch.setattr(LoggedEnd, "partitions_asked", lambda self, start, end: LoggedEnd(end))


@mistake(rules.LOG_IS_TOLD, tests=(AFTER_A_COMMIT,))
def be_somebody_new_after_a_restart(patch: Patch) -> None:
    """The process does not keep the log's end that Spark gives it."""
    right = LoggedEnd.partitions_asked

    def partitions_asked(self: LoggedEnd, start: Any, end: Any) -> LoggedEnd:
        after = right(self, start, end)
        return self if start == end else after

    patch.setattr(LoggedEnd, "partitions_asked", partitions_asked)
