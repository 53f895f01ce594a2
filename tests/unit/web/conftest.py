"""Fixtures of the page's tests."""

import pytest

from tests.support.web_site import ACTOR, Page


@pytest.fixture
def page(tmp_path):
    """The page, of a group whose query holds 20 records. A module may have its own."""
    page = Page(tmp_path / "state.db")
    page.running.join(starting_offsets="earliest", client_id="etl")
    page.running.start(page.running.next(max_records=20).plan_id)
    yield page
    page.close()


@pytest.fixture
def actor(page):
    return page.browser(ACTOR)
