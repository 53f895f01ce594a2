"""A sink decides over its own batch alone: a neighbour in the group, and the archive, keep what is theirs."""

import pytest

from share_sink.archive.batches import archive_dataset
from tests.support.group_state import describe

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EVERY = {"acknowledgement": "'accept'"}
MODE = "share.acknowledgement.mode"


def wait_done(query, queue) -> None:
    query.wait(lambda: describe(queue).lag() == 0, "all is done")


@pytest.mark.parametrize(
    ("own", "sink", "where"),
    [
        ({MODE: "implicit"}, "sharegroup", "false"),
        pytest.param({}, "sharegroup", "false", marks=pytest.mark.slow),
        pytest.param({MODE: "implicit"}, "threads+replace", "true", marks=pytest.mark.slow),
    ],
    ids=["a neighbour that names its mode", "a neighbour in the group's mode", "a part without rows, in a thread"],
)
def test_a_commit_without_rows_decides_over_no_other_query(orders, job, start, own, sink, where):
    """The neighbour has no sink; it is in its batch when a query in explicit mode commits without a row."""
    queue = job(orders, maxOffsetsPerTrigger=50)
    neighbour = start(queue.query("neighbour", options=own, hold=("5",))).wait_held("5")
    explicit = {"options": {MODE: "explicit"}, "columns": EVERY, "where": where, "trigger": "1 hour"}
    options = queue.sink_options(outputOnReplay="replaces")
    other = start(queue.query("other", sink=sink, sink_options=options, **explicit))
    other.wait(lambda: other.events("progress"), "its batch is committed")
    neighbour.spec.release()
    neighbour.wait(lambda: describe(queue).start_offset(orders) == 50, "what the neighbour has processed is accepted")
    assert not other.over()


def test_a_sink_that_names_another_mode_than_its_source_is_refused(orders, job, start):
    queue = job(orders)
    sink = queue.sink_options(**{MODE: "explicit"})
    error = start(queue.query("a", columns=EVERY, sink="acknowledge+replace", sink_options=sink)).wait_over().error()
    assert "AcknowledgementModeDiffers" in error and "was acquired with implicit" in error
    assert (describe(queue).lag(), describe(queue).configs().get(MODE)) == (100, None)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "error"), [("threads", "BatchNotNamed"), ("inheriting", "")])
def test_in_explicit_mode_a_part_without_rows_needs_its_query(orders, job, start, step, error):
    queue = job(orders, **{MODE: "explicit"})
    spec = queue.query(
        "a", columns=EVERY, sink=f"{step}+skip", sink_options=queue.sink_options(), trigger="available_now"
    )
    found = start(spec).wait_over().error()
    assert error in found and bool(error) == bool(found)
    assert describe(queue).lag() == (100 if error else 0)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["nothing+skip", "nothing+replace"])
def test_in_explicit_mode_a_commit_without_rows_accepts_nothing(orders, job, start, sink):
    queue = job(orders, **{MODE: "explicit"})
    options = queue.sink_options(outputOnReplay="replaces" if sink.endswith("replace") else "skips")
    spec = queue.query("a", columns=EVERY, sink=sink, sink_options=options, trigger="available_now")
    assert start(spec).wait_over().error() == ""
    found = describe(queue)
    assert (found.lag(), found.start_offset(orders), len(queue.output().rows)) == (100, 0, 100), "all are released"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "rejects", "archived"),
    [("parts", "text = '7' and deliveryCount = 1", []), ("threads", "text = '7'", [2])],
    ids=["with fewer writes", "in threads"],
)
def test_a_replay_replaces_what_the_archive_has_of_its_batch(orders, job, start, tmp_path, step, rejects, archived):
    queue = job(orders)
    archive = str(tmp_path / "archive")
    sink = queue.sink_options(**{"archive.path": archive, "outputOnReplay": "replaces"})
    decides = {"columns": {"acknowledgement": f"if({rejects}, 'reject', 'accept')"}, "sink_options": sink}
    assert "FailedOnPurpose" in start(queue.query("a", sink=f"{step}+fail", **decides)).wait_over().error()
    assert archive_dataset(archive).count_rows() == 1
    wait_done(start(queue.query("a", sink=f"{step}+replace", **decides)), queue)
    assert archive_dataset(archive).to_table()["deliveryCount"].to_pylist() == archived
    assert describe(queue).archived() == len(archived)
