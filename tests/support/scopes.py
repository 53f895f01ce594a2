"""Which tests stay together in one worker, in order: those of a scope."""

WITH_SPARK = "tests/spark/"


def scope_of(nodeid: str, *, is_short: bool) -> str:
    """Returns the test's module. In a short run all tests with Spark are one scope: a worker has the time for all of
    them, and each worker with a test of Spark would start a session of its own."""
    return WITH_SPARK if is_short and nodeid.startswith(WITH_SPARK) else nodeid.split("::", 1)[0]
