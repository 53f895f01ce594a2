"""The support of the tests with Spark works by itself: it is tried with Spark's rate source."""

import pytest

from tests.support.query_spec import QuerySpec

pytestmark = [pytest.mark.slow, pytest.mark.spark]

RATE = {"rowsPerBatch": "100", "numPartitions": "2"}


def test_a_program_runs_holds_and_fails_without_a_share_group(start, program, tmp_path):
    spec = QuerySpec(
        name="rate", directory=str(tmp_path), options=RATE, source="rate-micro-batch", hold=("150",), poison=("250",)
    )
    first = start(spec).wait_started().wait_held("150")
    assert first.events("written")[0]["batch"] == 0
    assert first.wait_tasks(2).tasks() == 2
    spec.release()
    assert "poison: 250" in first.wait_over().error()
