"""A coordinator on demand of a later version of sharegroup, as a process: this version's code with other numbers, and
with fields that this version does not know. Its arguments are a JSON object; it prints its port, and ends with its
standard input. Nothing of sharegroup is imported before its numbers are changed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec

REQUESTS, REPLIES = ("Probe", "Ask", "Tick"), ("Alive", "Moved", "Late", "Answer", "Echo")


class NextVersion:
    """The process; the arguments are those of `main`."""

    def __init__(self, folder: Path, **given: Any) -> None:
        folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps({"folder": str(folder), **given})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def close(self) -> None:
        """Sends SIGKILL to the process."""
        self.process.kill()
        self.process.communicate()


def main(bootstrap: str, folder: str, token: str, transport: int, protocol: int, patience_s: float) -> None:
    """Run the coordinator. ``transport`` and ``protocol``: its version of the requests between hosts, and of all
    requests. With this version's ``transport`` the messages have more fields."""
    records = _module("coordinator.protocol.host_records")
    if transport == records.VERSION:
        for name in (*REQUESTS, *REPLIES):
            setattr(records, name, _with_more_fields(getattr(records, name)))
        records._requests, records._replies = (
            msgspec.msgpack.Decoder(reduce(or_, (getattr(records, name) for name in names)))
            for names in (REQUESTS, REPLIES)
        )
    records.VERSION = transport
    _module("coordinator.protocol.format_versions").PROTOCOL = protocol
    owner = _module("coordinator.state_log.owner_record")
    owner.Owner, owner.PATIENCE_S = _with_more_fields(owner.Owner), patience_s
    wire = _module("coordinator.protocol.wire")
    settings = wire.LaunchSettings(
        bootstrap_servers=bootstrap,
        kafka_config={},
        state_store="kafka",
        configs={},
        endpoint_path=f"{folder}/endpoint.json",
    )
    coordinator = _module("coordinator.service.coordinator").Coordinator(settings, token)
    print(coordinator.server.port, flush=True)
    sys.stdin.read()
    coordinator.close()


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _with_more_fields(kind: Any) -> Any:
    tag = kind.__struct_config__.tag
    fields: list[Any] = [("later", str, "of a later version"), ("many", list, msgspec.field(default_factory=list))]
    config: dict[str, Any] = {"frozen": True, "kw_only": True, "tag": tag, "omit_defaults": False}
    return msgspec.defstruct(kind.__name__, fields, bases=(kind,), **config)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
