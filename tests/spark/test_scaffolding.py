"""What the tests with Spark stand on, tried without a share group: Spark's rate source."""

import pytest

from tests.support.query_spec import QuerySpec

pytestmark = pytest.mark.spark

RATE = {"rowsPerBatch": "100", "numPartitions": "2"}


def test_dry_run(start, program, tmp_path):
    spec = QuerySpec(
        name="rate", directory=str(tmp_path), options=RATE, source="rate-micro-batch", hold=("150",), poison=("250",)
    )
    first = start(spec).wait_started().wait_held("150")
    assert first.events("written")[0]["batch"] == 0
    assert first.wait_tasks(2).tasks() == 2
    spec.release()
    assert "poison: 250" in first.wait_over().error()
