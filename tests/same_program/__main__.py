"""``python -m tests.same_program`` runs every program on both sides and writes the table in
docs/do/share-consumer.md."""

from __future__ import annotations

import sys
import tempfile

import pytest

from tests.same_program.compare import MODULES, PAGE, run, written
from tests.support.kafka_broker import KafkaBroker


def main() -> int:
    """Runs all programs, one after the other."""
    with KafkaBroker() as broker, pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        for name in ("SHAREGROUP_RUNTIME_DIR", "SHAREGROUP_STATE_DIR"):
            patched.setenv(name, folder)
        traces = []
        for module in MODULES:
            for program in module.PROGRAMS:
                traces.append(run(program, broker))
                print(traces[-1].row, flush=True)
        PAGE.write_text(written(traces), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
