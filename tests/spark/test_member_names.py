"""A query's member shows the application's name and process from the start; with a sink of sharegroup the query's name
and checkpoint."""

import pytest

from tests.support.group_state import describe

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EVERY = {"acknowledgement": "'accept'"}


def member(queue):
    (found,) = describe(queue).description.members
    return found


@pytest.mark.parametrize("sink", ["parquet", pytest.param("sharegroup", marks=pytest.mark.slow), "acknowledge"])
def test_a_member_shows_its_query_s_name_else_its_application_s(orders, job, start, sink):
    queue = job(orders)
    is_ours = sink != "parquet"
    fields = {"columns": EVERY, "sink": sink, "sink_options": queue.sink_options()} if is_ours else {}
    query = start(queue.query("a", **fields))
    query.wait(lambda: describe(queue).lag() == 0, "all is done")
    found = member(queue)
    assert found.client_id == (query.spec.name if is_ours else "sharegroup-test")
    assert found.client_pid and found.client_host
    assert found.checkpoint.endswith(str(query.spec.checkpoint_path)) is is_ours
