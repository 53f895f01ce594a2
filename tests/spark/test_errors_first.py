"""Spark's exception begins with the named error's sentence: no frames of what the reader and the sink call."""

import pytest

from tests.support.ports import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.broker]

NO_FRAMES_OF = ("tenacity", "pyarrow", "concurrent", "Traceback", 'File "')
TOKEN = "a-token-of-enough-characters"


def assert_first(error, name, sentence):
    """The first line of Spark's exception has the error's name and sentence, and there are no frames."""
    first = error.splitlines()[0]
    assert f"{name}: {sentence}" in first
    assert [word for word in NO_FRAMES_OF if word in error] == []


def test_an_error_of_load_begins_with_its_name(job, start, unique):
    missing = unique("missing")
    error = start(job(missing).query("a")).wait_over().error()
    assert_first(error, "UnknownTopic", f"Topic {missing} does not exist")


def test_an_error_of_the_reader_begins_with_its_name(orders, job, start, tmp_path):
    """The client retries through tenacity and Flight before it gives up."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    endpoint = f"localhost:{free_ports(1)[0]}"
    options = {"share.coordinator.endpoint": endpoint, "share.coordinator.token.file": str(token)}
    more = {"share.broker.outage.timeout.ms": "1000"}
    error = start(job(orders, **options, **more).query("a")).wait_over().error()
    assert_first(error, "CoordinatorUnreachable", f"No coordinator answers at {endpoint}")


def test_an_error_of_the_sink_begins_with_its_name(orders, job, start, unique):
    queue, absent = job(orders), unique("absent")
    sink = {**queue.sink_options(), "kafka.group.id": absent}
    columns = {"acknowledgement": "'accept'"}
    error = start(queue.query("a", columns=columns, sink="sharegroup", sink_options=sink)).wait_over().error()
    assert_first(error, "GroupIdNotFound", f"Share group {absent} does not exist")
