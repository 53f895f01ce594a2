"""A host: a coordinator on demand with a runtime folder of its own, in this process, and a client of it."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from coordinator.client.connection import Connection
from coordinator.protocol.errors import CoordinatorNotAvailable, NotCoordinator
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import AcquireRecords, JoinGroup
from coordinator.protocol.wire import Endpoint, LaunchSettings, decode_answer, encode
from coordinator.service.coordinator import Coordinator
from coordinator.service.hosts import owner_requests
from coordinator.service.hosts.gateway import Gateway, OwnerAway
from coordinator.service.stores.kafka.group_list import groups_in
from coordinator.state_log.owner_state import OwnerState
from tests.support.waiting import wait_until

TOKEN = "a-token-of-a-test"


class Host:
    """A coordinator on demand of another host, and a client of it there."""

    def __init__(self, bootstrap: str, folder: Path, kafka_config: Mapping[str, str] = MappingProxyType({})) -> None:
        folder.mkdir()
        self.coordinator = Coordinator(
            LaunchSettings(
                bootstrap_servers=bootstrap,
                kafka_config=dict(kafka_config),
                state_store="kafka",
                configs={},
                endpoint_path=str(folder / "endpoint.json"),
            ),
            TOKEN,
        )
        port = self.coordinator.server.port
        self.client = Connection(Endpoint(host="127.0.0.1", port=port, token=TOKEN, pid=os.getpid()))
        self.is_closed = False

    def ask(self, request: Any, **fields: Any) -> Any:
        """The reply, asked for again while the group moves, as a client does."""

        def reply():
            try:
                return self.client.call(request, **fields)
            except (CoordinatorNotAvailable, NotCoordinator):
                return None

        return wait_until(reply, what=f"an answer to {type(request).__name__}")

    def join(self, group: str, topic: str, member: str, epoch: int | None = None, **configs: str) -> dict[str, Any]:
        joined = self.ask(
            JoinGroup(
                group_id=group,
                member_id=member,
                process_id=f"{member}-p",
                member_epoch=epoch,
                query=False,
                topics=(topic,),
                starting_offsets="earliest",
                configs={name.replace("_", "."): value for name, value in configs.items()},
            )
        )
        return {"group_id": group, "member_id": member, "member_epoch": joined.member_epoch}

    def rejoin(self, topic: str, member: dict[str, Any]) -> dict[str, Any]:
        """As a member whose coordinator was replaced."""
        return self.join(member["group_id"], topic, member["member_id"], member["member_epoch"])

    def owns(self, group: str) -> bool:
        return bool(self.coordinator.runtime.tenure(group))

    def owner_of(self, group: str) -> Any:
        """The owner in the group's log."""
        topic = self.coordinator.state._topic
        return groups_in(topic, [topic.partition_of(group)])[group]

    @property
    def gateway(self) -> Any:
        return self.coordinator.hosts.gateway

    def pass_on(self, group: str, request: Any, name: str = "", body: bytes = b"") -> Any:
        """Ask the group's owner directly, with an id of the test's own."""
        answer = self.gateway.pass_on(
            group,
            self.gateway.owner_of(group),
            name or type(request).__name__,
            body or encode(request),
            request_id=uuid.uuid4().hex,
            protocol=str(PROTOCOL),
            is_action=False,
            waits_s=0,
            is_patient=True,
        )
        return decode_answer(answer)

    def be_silent(self) -> None:
        """Hear no other host any more, as a process that stands still."""
        self.coordinator.hosts.requests._on_record = lambda message: None
        requests = self.coordinator.hosts.requests
        requests._look = lambda: None
        if requests._reader is not None:
            requests._reader._on_record = requests._on_record

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.client.close()
            self.coordinator.close()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *error: object) -> None:
        """Close the host at the end of its test, where no other host asks any more where the groups have gone."""
        with mock.patch.object(owner_requests, "SAYS_MOVED_S", 0.0):
            self.close()


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Meanwhile no host takes a group from an owner that is silent: a new owner gives its first answer after up to
    three seconds, and later on a busy machine."""
    look = Gateway._look

    def look_again(gateway: Gateway, group_id: str, owner: Any, **how: Any) -> Any:
        try:
            return look(gateway, group_id, owner, **how)
        except OwnerAway as gone:
            if gone.found is not OwnerState.SILENT:
                raise
            raise CoordinatorNotAvailable(group_id=group_id, reason="the test asks again") from gone

    with mock.patch.object(Gateway, "_look", look_again):
        yield


def acquired(host: Host, member: dict[str, Any], **fields: Any) -> list[int]:
    reply = host.ask(AcquireRecords(**member, max_records=10, **fields))
    return [n for part in reply.partitions for each in part.ranges for n in range(each.first, each.last + 1)]
