"""The compiled reader under the compiler's sanitizers of addresses and of undefined behaviour, which end the process at
the first wrong access, overflow or shift."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compiled_reader import compile_reader
from tests.support.imports import PACKAGES, ROOT

pytestmark = [pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(3_000)]

COPIED = ("conf", *PACKAGES, "tests", "tools")
TESTS = ("messages", "same_records", "rows", "losses", "odd_records")


def test_the_readers_tests_pass_under_the_sanitizers(tmp_path: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".build").symlink_to(ROOT / ".build")
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    compile_reader(tmp_path / "share_source" / "executor" / "native" / "_drain.abi3.so", *flags)
    library = subprocess.check_output(["cc", "-print-file-name=libasan.so"], text=True).strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(tmp_path),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # Python leaves memory to the end of the process
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "SHAREGROUP_READER": "native",
    }
    tests = [f"tests/integration/readers/test_{name}.py" for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "native", *tests]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3_000:] + run.stderr[-3_000:]
    print(run.stdout.splitlines()[-1])
    assert " passed" in run.stdout
