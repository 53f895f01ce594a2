"""The wheels of what users install: each platform that the docs name still resolves, by asking the package registry."""

import pytest

from tools import resolve_platforms

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_200)]


def test_a_requirement_without_a_wheel_is_named():
    """Of pyspark there are source distributions alone."""
    found = resolve_platforms.resolve(["pyspark"], "3.12", "--no-build", "--python-platform", "aarch64-apple-darwin")
    assert resolve_platforms.cell(found) == "without pyspark"


@pytest.mark.parametrize("python", resolve_platforms.PYTHONS)
def test_every_served_platform_has_a_wheel_of_every_requirement(python):
    for name, platform in resolve_platforms.SERVED.items():
        assert resolve_platforms.cell(resolve_platforms.wheels(python, platform)) == "yes", (python, name)


@pytest.mark.parametrize("python", resolve_platforms.PYTHONS)
def test_every_python_has_a_spark_that_is_served(python):
    assert resolve_platforms.spark(python) in ("4.0", "4.1", "4.2", "4.3")
