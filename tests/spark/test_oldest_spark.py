"""What a Spark without Python sources says, and the table of versions."""

import subprocess
import sys

import pytest

from tests.support.imports import ROOT
from tools import generate_spark_table


def test_a_spark_without_python_sources_is_named_when_the_format_is_imported():
    """As in Spark 3.5, whose pyspark has no module of data sources."""
    use = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyspark.sql.datasource" else find(name, *rest)
import pyspark_sharegroup
"""
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, cwd=ROOT)
    assert "SparkTooOld: sharegroup needs Spark 4.0 or newer, and this is Spark " in done.stderr


@pytest.mark.slow
def test_the_table_of_versions_equals_each_pysparks_own():
    """With Python 3.10 the environment has no Spark 4.3, and its column is not looked at."""
    page, found = generate_spark_table.written(), generate_spark_table.columns()
    assert {"4.0", "4.1", "4.2"} <= set(found) <= set(page)
    assert {version: page[version] for version in found} == found, "run: python tools/generate_spark_table.py"
