"""◆ Targets that replace their output: there the last attempt alone counts."""

from __future__ import annotations

from tests.support.group_driver import from_snapshot
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, said, states


def test_where_the_target_replaces_its_output_the_last_attempt_alone_counts() -> None:
    """Nothing of an earlier attempt counts, neither its outcomes nor what it passed over, also after a load."""
    for configs, first, last, after in (
        ({}, ACCEPT, REJECT, ["[0..0] ARCHIVING 3"]),
        ({}, REJECT, ACCEPT, []),
        ({}, RELEASE, ACCEPT, []),
        ({}, ACCEPT, RELEASE, ["[0..0] AVAILABLE 3"]),
        ({}, REJECT, None, []),
        (EXPLICIT, None, ACCEPT, []),
        (EXPLICIT, ACCEPT, None, ["[0..0] AVAILABLE 3"]),
    ):
        group, plan = batch(2, **DLQ, **configs)
        for count, outcome in ((1, first), (2, first), (3, last)):
            if count > 1:
                group.restart(plan)
            rows = [] if outcome is None else [said(0, 0, outcome, count)]
            group.stage(*rows, said(1, 1, ACCEPT, count), replaces=True)
        from_snapshot(group)
        group.join()
        group.complete(plan)
        assert [state for state in states(group) if not state.startswith("[1")] == after, (first, last)


def test_older_attempts_veto_unless_all_sinks_of_the_last_attempt_replace() -> None:
    """A target that skips may hold what an earlier attempt wrote, whatever was said of the target then."""
    for last in ([True, False], [False, True], [False], []):
        for configs in ({}, EXPLICIT):
            group, plan = batch(3, **DLQ, **configs)
            group.stage(said(0, 0, RELEASE), said(2, 2, RELEASE), replaces=True)
            group.restart(plan)
            for replaces in last:
                group.stage(said(0, 1, ACCEPT, 2), said(2, 2, ACCEPT, 2), replaces=replaces)
            group.complete(plan)
            assert states(group)[:1] == ["[0..2] AVAILABLE 2" if configs else "[0..0] AVAILABLE 2"], last


def test_sinks_of_one_attempt_that_disagree_release_for_any_target() -> None:
    """One of its outputs has the record, the other has not. Of an attempt before, that is nothing."""
    group, plan = batch(2, **DLQ)
    group.stage(said(0, 1, ACCEPT), replaces=True)
    group.stage(said(0, 0, REJECT), replaces=True)
    group.restart(plan)
    group.stage(said(0, 1, ACCEPT, 2), replaces=True)
    group.stage(said(1, 1, REJECT, 2), replaces=True)
    group.stage(said(1, 1, REJECT, 2), replaces=True)
    group.complete(plan)
    assert states(group) == ["[1..1] AVAILABLE 2"]


def test_a_commit_without_rows_speaks_for_the_plan_that_it_names() -> None:
    """0 was rejected; in the last attempt it is accepted by silence."""
    for named, after in ((True, []), (False, ["[0..0] AVAILABLE 2"])):
        group, plan = batch(1, **DLQ)
        group.stage(said(0, 0, REJECT), replaces=True)
        group.restart(plan)
        group.silent(replaces=True) if named else group.stage(replaces=True)
        group.complete(plan)
        assert states(group) == after
