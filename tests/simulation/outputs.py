"""The outputs at the end of a run, compared with the ledger: nothing accepted is missing, nothing is there twice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.administration import BY_HAND
from tests.simulation.broker import Record
from tests.simulation.ttl_judge import TOO_OLD

if TYPE_CHECKING:
    from tests.simulation.service import ServiceRun


def check_outputs(run: ServiceRun) -> None:
    """Each record that was accepted is in an output or was a ShareConsumer's; in one only, if no lock was lost."""
    held: Counter[Record] = Counter()
    excused: set[Record] = {(p, offset) for p, offset, _ in run.ledger.lost} | run.ledger.passed_over
    excused |= run.ledger.actions.reset
    gone: set[Record] = set()
    for checkpoint, options in run.every_checkpoint():
        excused |= checkpoint.doubled
        gone |= checkpoint.gone | checkpoint.left_out
        for batch in checkpoint.commits:
            held.update(checkpoint.outputs[batch])
            if options.skips and checkpoint.attempts[batch] > 1:  # it was cut, or its outcomes changed
                excused.update(checkpoint.outputs[batch])
    sinks = run.scenario.sinks
    if (sinks is None or sinks.keeps_order) and not run.scenario.consumers and run.ledger.config.is_ordered:
        run.ledger.order.check_outputs(excused)
    for record, number in run.ledger.done_by.items():
        held[record] += not run.ledger.plans[number].query
        if not held[record] and record not in gone:
            run.world.fail(f"{record} was accepted in plan {number}, and is in no output")
        if held[record] > 1 and record not in excused and not _changes(run, record):
            run.world.fail(f"{record} was accepted in plan {number}, and is in {held[record]} outputs")
        rejected = run.judge is not None and run.judge.is_rejected_always(record)
        if rejected and run.ledger.plans[number].query and record not in gone:
            run.world.fail(f"{record} was accepted in plan {number}, and every sink rejects it")
    for record in run.ledger.archived:
        poisoned = record in excused or record in run.broker.poison or _changes(run, record)
        if held[record] and not poisoned and run.ledger.archived[record] not in ("the log's loss", BY_HAND, TOO_OLD):
            run.world.fail(f"{record} was archived ({run.ledger.archived[record]}), and is in an output")


def _changes(run: ServiceRun, record: Record) -> bool:
    """Attempts may have said different things of it: then it may be repeated, unless all targets replace."""
    says = bool(run.scenario.query_options) and all(options.replaces for options in run.scenario.query_options)
    return run.judge is not None and run.judge.changes(record) and not says
