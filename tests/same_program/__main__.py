"""``python -m tests.same_program`` runs every program on both sides and writes traces.md, and its part in
docs/do/share-consumer.md."""

from __future__ import annotations

import sys
import tempfile

import pytest

from tests.same_program.compare import GOLDEN, MODULES, PAGE, golden, page, run
from tests.support.kafka_broker import KafkaBroker


def main() -> int:
    """Runs all programs, one after the other."""
    with KafkaBroker() as broker, pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        for name in ("SHAREGROUP_RUNTIME_DIR", "SHAREGROUP_STATE_DIR"):
            patched.setenv(name, folder)
        rows = []
        for module in MODULES:
            for program in module.PROGRAMS:
                rows.append(run(program, broker).row)
                print(rows[-1], flush=True)
        GOLDEN.write_text(golden(rows), encoding="utf-8")
        PAGE.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
