"""What Spark's processes of a query import, each of which is started anew."""

from __future__ import annotations

import subprocess
import sys

from tests.support.imports import python_path

PROGRAM = """
import sys
import pyspark_sharegroup.format, share_sink.sink, share_sink.writer, share_source.driver.reader
print("pandas" in sys.modules)
"""


def test_no_process_of_a_query_imports_pandas_to_begin() -> None:
    """pyarrow imports it with pyarrow.dataset, and for the first array that is made of a list."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": python_path()}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
