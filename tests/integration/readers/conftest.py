"""The contract of the readers: the tests of this folder run with each of them, and no other test runs with two. A new
reader is another of READERS. What one reader alone does is a test that names that reader."""

from collections.abc import Iterator

import pytest

from share_source.executor.reader_choice import NATIVE, PYTHON
from tests.support.compiled_reader import ensure_compiled
from tests.support.read_tasks import reading_with

READERS = [NATIVE, pytest.param(PYTHON, marks=pytest.mark.slow)]


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test with each reader; the name of the reader."""
    ensure_compiled()
    with reading_with(request.param):
        yield str(request.param)
