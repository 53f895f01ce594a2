"""The fixture for a test project: its conftest.py imports it, and nothing else of pytest is changed. The brokers of a
process are those of :mod:`sharegroup.testing.brokers`.

from sharegroup.testing.pytest import sharegroup_broker"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sharegroup.testing.brokers import broker


@pytest.fixture
def sharegroup_broker() -> Iterator[str]:
    """The address of a broker in memory of the test's own; ``sharegroup.testing.produce`` puts records into it."""
    with broker() as address:
        yield address
