"""The admin client of share groups: reads groups, and carries out actions on them.

Rule: a read takes no group. If no coordinator runs, a read uses the state store (``read_from`` of the answer says so).
A coordinator on demand is started for an action, and to ask another host for a group that it owns."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import msgspec

from coordinator.admin.arguments import (
    changes,
    check_request,
    connection,
    group_states,
    names,
    partitions_by_topic,
    wait_of,
)
from coordinator.client.client import CoordinatorClient
from coordinator.client.connection import CALL_TIMEOUT_S
from coordinator.client.endpoints import Endpoints
from coordinator.client.offset_resets import ResetTo, reset_of
from coordinator.client.on_demand import OnDemand, runtime_dir, store_of
from coordinator.config.group_keys import PAUSED
from coordinator.config.kafka_options import redacted
from coordinator.config.resolved import CoordinatorConfig
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.protocol.admin_messages import (
    Action,
    Altered,
    AlterGroupConfigs,
    AlterOffsets,
    Cursor,
    DecideRecords,
    DeleteGroup,
    DeleteOffsets,
    GroupListing,
    GroupPosition,
    GroupsListed,
    HistoryRead,
    ImportGroup,
    InFlightPage,
    ListGroups,
    ListInFlight,
    ListOffsets,
    ListPlans,
    ListWindows,
    OffsetChanges,
    OffsetsListed,
    PlanInFlight,
    ReadHistory,
    ReadPosition,
    ReleaseMember,
    RunInFlight,
    Window,
)
from coordinator.protocol.errors import (
    AdminClosed,
    CoordinatorUnreachable,
    GroupChanged,
    GroupIdNotFound,
    InvalidRequest,
    NotCoordinator,
    ShareGroupError,
    UnknownSharePartition,
    told_to_clients,
)
from coordinator.protocol.host_errors import HostTopicNotAuthorized
from coordinator.protocol.messages import DescribeGroup, GroupDescription, GroupRequest, Reply, Request
from coordinator.protocol.rights import Right
from coordinator.protocol.topic_names import ALL_TOPICS, topics_in
from coordinator.protocol.wire import LaunchSettings, TokenHolder, WhoAmI

RETRY_S = 15.0
"""A call is retried through an outage for this many seconds: a person waits for it."""

LOOKS = 5
"""An action reads the group again up to this many times while the group changes; then the action is refused."""

OWNERS_S, OWNERS_AT_ONCE = 10.0, 16
"""A list waits OWNERS_S seconds for a coordinator that serves groups of it, and asks OWNERS_AT_ONCE at once."""

DOWN_S = 30.0
"""For this many seconds after a call that no coordinator answered, calls are tried once, and not for RETRY_S."""

Answer = TypeVar("Answer", Altered, OffsetChanges)
ReadStore: TypeAlias = Callable[[LaunchSettings], Callable[[Request[Any]], Any]]
"""Opens a state store for reading. The result answers read requests."""


def _read_store(settings: LaunchSettings) -> Callable[[Request[Any]], Any]:
    from coordinator.service.handlers.read_only import read_store  # its imports take a second

    return read_store(settings)


class Admin:
    """An admin client. ``conf``: ``bootstrap.servers`` and other properties, librdkafka's or Java's, and
    ``share.coordinator.*`` and ``share.state.store`` as a query of the groups sets them. With
    ``share.coordinator.endpoint`` the brokers may be left out. ``token``: used instead of a token of
    ``share.coordinator.token.file``. If that file has several, the one with the right `admin` is used, or the one with
    the right `read` if none has it. ``timeout_ms``: how long the brokers, and
    then a coordinator, are waited for; None: 15 s. Thread-safe; :meth:`close`, or use as a context manager.

    Raises:
        MissingOption: neither brokers nor an endpoint are named.
        ShareGroupError: a property is wrong (the errors of to_librdkafka, broker_addresses, check_kafka_config).
        UnknownConfig, ConfigOutOfBounds, ConfigTypeMismatch, ConfigConflict: a key or a value is bad.
        UnsafeDirectory: SHAREGROUP_RUNTIME_DIR can't be used, and no endpoint is named.
        BrokerNotReachable: the brokers do not answer, and no endpoint is named.
        TokenMissing, InvalidToken, UnsafeFile, UnusableFile: the endpoint's token can't be used."""

    _is_closed = False

    def __init__(
        self,
        conf: Mapping[str, object],
        *,
        read_store: ReadStore = _read_store,
        timeout_ms: int | None = None,
        token: str | None = None,
    ) -> None:
        self._timeout_s = wait_of(timeout_ms, RETRY_S)
        kafka, self._coordinator_configs, self._bootstrap_servers = connection(conf)
        named = {"bootstrap.servers": self._bootstrap_servers} if self._bootstrap_servers else {}
        self._kafka_config: dict[str, str] = {**kafka, **named}
        self._read_store = read_store
        self._readers: dict[str, Callable[[Request[Any]], Any]] = {}
        self._opening = threading.Lock()
        config = CoordinatorConfig.parse(self._coordinator_configs)
        self._state_store = config.share_state_store
        self._on_demand: OnDemand | None = None
        directory: OnDemand | Endpoints
        if config.share_coordinator_endpoint:
            directory = Endpoints.of(self._coordinator_configs, (Right.ADMIN, Right.READ), token)
        else:
            directory = self._on_demand = self._find_on_demand()
            self._state_store = directory.state_store
        retry_s = min(self._timeout_s, config.share_broker_outage_timeout_ms / 1000)
        self._answer_timeout_s = CALL_TIMEOUT_S if timeout_ms is None else min(CALL_TIMEOUT_S, self._timeout_s)
        self._client = CoordinatorClient(directory, retry_timeout_s=retry_s)
        self._down_until_s = 0.0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._client!r} {redacted(dict(self._kafka_config))}>"

    def __enter__(self) -> Admin:
        if self._is_closed:
            raise AdminClosed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._client.close()

    def who_am_i(self) -> TokenHolder:
        """The name, the rights and the allow lists of the client's token.

        Raises:
            InvalidRequest: the coordinator is of an earlier version, which does not say.
            NotAuthorized: nobody has the token."""
        return self._ask(WhoAmI())

    # --- looks

    def list_groups(self, states: Iterable[str] = (), *, only_ids: bool = False) -> GroupsListed:
        """The groups of the state store, of all hosts and of all standalone coordinators. ``states``: only groups in
        one of these states. Each coordinator is asked for the states of its groups, all of them at once. A group whose
        coordinator gives no answer within OWNERS_S is UNKNOWN, and names that coordinator. ``only_ids``: no other
        coordinator is asked.

        Raises:
            InvalidRequest: groups have no such state.
            ShareGroupError: the coordinator, or the store, can't answer."""
        wanted = group_states(states)
        listed = self._look(ListGroups())
        if only_ids:
            return listed
        if listed.read_from and any(listing.coordinator for listing in listed.groups):
            with contextlib.suppress(ShareGroupError):  # a coordinator of this host asks the other hosts
                listed = self._ask(ListGroups())
        found = {listing.group_id: listing for listing in listed.groups}
        owned: dict[str, list[str]] = {}
        for listing in listed.groups if not listed.read_from else ():
            if listing.coordinator:
                owned.setdefault(listing.coordinator, []).append(listing.group_id)
        with ThreadPoolExecutor(OWNERS_AT_ONCE, thread_name_prefix="share-list-groups") as threads:
            for listings in threads.map(self._listed_by_owner, owned.values()):
                found |= {each.group_id: each for each in listings}
        groups = tuple(listing for _, listing in sorted(found.items()) if not wanted or listing.state in wanted)
        return GroupsListed(groups=groups, read_from=listed.read_from)

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """The groups' descriptions by id. A group that does not exist is DEAD, as for Kafka's DescribeGroups. Several
        are asked for at once: an owner on another host may be silent. Raises ShareGroupError if the coordinator, or the
        store, can't answer."""
        ids = list(dict.fromkeys(names("group_ids", group_ids)))
        with ThreadPoolExecutor(OWNERS_AT_ONCE, thread_name_prefix="share-describe") as threads:
            return dict(zip(ids, threads.map(self._described, ids), strict=True))

    def list_offsets(
        self, group_id: str, topics: Iterable[str] = (), *, partitions: Iterable[int] = ()
    ) -> OffsetsListed:
        """Start offset, end offset and lag of the group's share partitions: of these topics, and with these numbers, if
        any are named.

        Raises:
            GroupIdNotFound: the group does not exist.
            UnknownSharePartition: the group has nothing of a topic that is named, or of a partition."""
        request = ListOffsets(group_id=group_id, topics=names("topics", topics), partitions=tuple(partitions))
        listed = self._look(request)
        numbers = "".join(f", partition {each}" for each in request.partitions)
        there = {each.topic for each in listed.partitions}, {each.partition for each in listed.partitions}
        missing = [f"topic {each}{numbers}" for each in request.topics if each not in there[0]]
        missing += [f"partition {each}" for each in request.partitions if each not in there[1]]
        if missing:
            raise UnknownSharePartition(group_id=group_id, partition=missing[0])
        return listed

    def in_flight(
        self,
        group_id: str,
        *,
        only_state: Iterable[str] = (),
        held_longer_than_ms: int | None = None,
        progress_staleness_ms: int | None = None,
        member_id: str = "",
        cursor: Cursor | None = None,
        limit: int = 1_000,
    ) -> InFlightPage:
        """A page of the group's runs in flight; ``cursor`` is that of the page before. For the filters see
        :class:`~coordinator.protocol.admin_messages.ListInFlight`.

        Raises:
            GroupIdNotFound: the group does not exist.
            InvalidRequest: a state is unknown."""
        request = ListInFlight(
            group_id=group_id,
            states=tuple(state.upper() for state in names("only_state", only_state)),
            held_longer_than_ms=held_longer_than_ms,
            progress_staleness_ms=progress_staleness_ms,
            member_id=member_id,
            cursor=cursor,
            limit=limit,
        )
        return self._look(request)

    def all_in_flight(self, group_id: str, *, cursor: Cursor | None = None, **filters: Any) -> Iterator[RunInFlight]:
        """The runs of all pages of :meth:`in_flight`, from ``cursor`` on. The group may change between two pages."""
        page = self.in_flight(group_id, **filters, cursor=cursor)
        yield from page.runs
        while page.cursor is not None:
            page = self.in_flight(group_id, **filters, cursor=page.cursor)
            yield from page.runs

    def windows_in_flight(self, group_id: str, windows: Iterable[Window]) -> tuple[InFlightPage, ...]:
        """Returns a page of the runs in flight of each window, in one request of up to 1,000 runs in all. A page's
        ``cursor``: where the rest of its window begins. Raises GroupIdNotFound if the group does not exist."""
        return self._look(ListWindows(group_id=group_id, windows=tuple(windows))).pages

    def plans(self, group_id: str) -> tuple[PlanInFlight, ...]:
        """The newest plan of each query of the group. Raises GroupIdNotFound if the group does not exist."""
        return self._look(ListPlans(group_id=group_id)).plans

    def history(self, group_id: str, topic: str, partition: int, offset: int, *, limit: int = 100) -> HistoryRead:
        """Returns who held the record at this offset, when, and how each delivery ended, as far back as the state log
        goes: the newest ``limit`` entries (up to 1,000), oldest first. Raises GroupIdNotFound or UnknownSharePartition
        if the group or the share partition does not exist."""
        request = ReadHistory(group_id=group_id, topic=topic, partition=partition, offset=offset, limit=limit)
        return self._look(request)

    def position(self, group_id: str) -> GroupPosition:
        """Returns how far the group has come in the topics that exist, as :meth:`import_group` takes it. Raises
        GroupIdNotFound if the group does not exist."""
        return self._look(ReadPosition(group_id=group_id))

    def coordinator_of(self, group_id: str) -> str:
        """The coordinator that serves the group, as host:port and its process id in brackets; empty if none runs.
        Raises ShareGroupError if no coordinator can be asked."""
        return self._described(group_id).coordinator

    # --- actions: each is carried out once, however often it is sent. ``seen``: the ``state`` of an earlier answer with
    # ``execute`` false: the action is refused (GroupChanged) where the group has changed since then.

    def reset_offsets(
        self,
        group_id: str,
        to: ResetTo = "earliest",
        *,
        shift_by: int | None = None,
        topics: Mapping[str, Iterable[int]] | Iterable[str] = (),
        execute: bool = False,
        force: bool = False,
        reason: str = "",
        seen: str = "",
    ) -> OffsetChanges:
        """Set the group's start offsets: all that are named, or none. ``to``: ``earliest``, ``latest``, a datetime with
        a time zone, a timedelta before now, an offset, or offsets by topic and partition, as
        ``sharegroup.offsets_from_file`` reads them from a CSV file; or ``shift_by``. ``topics`` may name partitions; no
        topic: all of the group's. Offsets beyond a log are moved to its start or end. ``execute`` false: only say what
        would change. ``force``: reset also while the group has members, whose records in flight are then delivered
        again. ``force`` also takes the group from a coordinator of another host, once ``execute`` is set.

        Raises:
            InvalidReset: ``to`` can't be used.
            GroupNotEmpty, MembersNotKnown: the group has members, or may have.
            GroupIdNotFound, UnknownTopic, UnknownPartition: the group, a topic or a partition does not exist."""
        named = partitions_by_topic(topics)
        kind, value, offsets = reset_of(to, shift_by)
        request = AlterOffsets(
            group_id=group_id,
            to=kind,
            value=value,
            offsets=offsets,
            topics=named,
            execute=execute,
            force=force,
            reason=reason,
            seen=seen,
        )
        return self._act(request)

    def delete_offsets(
        self,
        group_id: str,
        topics: Iterable[str],
        *,
        execute: bool = False,
        force: bool = False,
        reason: str = "",
        seen: str = "",
    ) -> OffsetChanges:
        """Forget what the group has of these topics. ``force``: also if dead letters are not written yet.

        Raises:
            GroupSubscribedToTopic, DeadLettersNotWritten, MembersNotKnown: the topics are still in use, or may be.
            GroupIdNotFound, UnknownSharePartition: the group or the share partition does not exist."""
        if not (named := names("topics", topics)):
            raise InvalidRequest(what="topics is empty: name at least one topic.")
        return self._act(
            DeleteOffsets(group_id=group_id, topics=named, execute=execute, force=force, reason=reason, seen=seen)
        )

    def delete_group(
        self, group_id: str, *, execute: bool = False, force: bool = False, reason: str = "", seen: str = ""
    ) -> Altered:
        """Delete the group. ``force``: also if dead letters are not written yet.

        Raises:
            GroupNotEmpty, DeadLettersNotWritten, MembersNotKnown: the group is still in use, or may be.
            GroupIdNotFound: the group does not exist."""
        return self._act(DeleteGroup(group_id=group_id, execute=execute, force=force, reason=reason, seen=seen))

    def import_group(
        self, group_id: str, position: GroupPosition, *, execute: bool = False, reason: str = "", seen: str = ""
    ) -> Altered:
        """Create the group at this position, with the position's configs. Records in none of its runs were never
        delivered; from the start offset to the last run they are available. A start offset below the log is moved to
        its start.

        Raises:
            GroupExists: the group exists, also if an earlier import created it.
            InvalidImport, UnknownTopic, UnknownPartition: the position can't be taken in this cluster.
            MaxGroupsReached: the coordinator has as many groups as it may have.
            UnknownConfig, ConfigTypeMismatch, ConfigOutOfBounds, ConfigConflict, DeadLetterTopicMissing,
                DeadLetterTopicNotAuthorized, DeadLetterTopicSubscribed: as of :meth:`alter_configs`."""
        how: dict[str, Any] = {"execute": execute, "reason": reason, "seen": seen}
        return self._act(
            ImportGroup(group_id=group_id, partitions=position.partitions, configs=position.configs, **how)
        )

    def alter_configs(
        self,
        group_id: str,
        configs: Mapping[str, str] = MappingProxyType({}),
        unset: Iterable[str] = (),
        *,
        execute: bool = False,
        force: bool = False,
        reason: str = "",
        seen: str = "",
    ) -> Altered:
        """Set ``configs`` of the group, and unset others, which are checked before. ``force``: unset a dead letter
        topic, or set errors.deadletterqueue.on.failure=archive, also while records wait for their dead letters.

        Raises:
            UnknownConfig, ConfigTypeMismatch, ConfigOutOfBounds, ConfigConflict: a key or a value is bad.
            GroupIdNotFound: the group does not exist.
            DeadLetterTopicMissing, DeadLetterTopicNotAuthorized, DeadLetterTopicSubscribed, DeadLetterTopicInUse,
                TopicNotWritten: the new dead letter topic can't be used."""
        wanted, keys = changes(configs, unset)
        return self._act(
            AlterGroupConfigs(
                group_id=group_id, set=wanted, unset=keys, execute=execute, force=force, reason=reason, seen=seen
            )
        )

    def pause(
        self, group_id: str, topics: Iterable[str] = (), *, execute: bool = False, reason: str = "", seen: str = ""
    ) -> Altered:
        """Let no member acquire records of these topics; without ``topics``: of any topic. Members keep what they hold.
        The config ``share.paused.topics`` gets the topics, beside those that are paused already.

        Raises:
            UnknownSharePartition: the group has nothing of a topic, and no member subscribes to it by its name.
            GroupIdNotFound: the group does not exist."""
        more = names("topics", topics)

        def paused(before: list[str]) -> Iterable[str]:
            return [ALL_TOPICS] if not more or ALL_TOPICS in (*before, *more) else (*before, *more)

        return self._alter_paused(group_id, more, paused, execute, reason, seen)

    def resume(
        self, group_id: str, topics: Iterable[str] = (), *, execute: bool = False, reason: str = "", seen: str = ""
    ) -> Altered:
        """Let members acquire records of these topics again; without ``topics``: of all.

        Raises:
            InvalidRequest: all topics are paused, and some are named.
            UnknownSharePartition, GroupIdNotFound: as with :meth:`pause`."""
        some = names("topics", topics)

        def paused(before: list[str]) -> Iterable[str]:
            if not some or ALL_TOPICS in some:
                return []
            if ALL_TOPICS in before:
                what = f"All topics of share group {group_id} are paused: resume all, or set {PAUSED} to those that"
                raise InvalidRequest(what=f"{what} are to stay paused.")
            return [topic for topic in before if topic not in some]

        return self._alter_paused(group_id, some, paused, execute, reason, seen)

    def _alter_paused(
        self,
        group_id: str,
        named: tuple[str, ...],
        paused: Callable[[list[str]], Iterable[str]],
        execute: bool,
        reason: str,
        seen: str,
        looks: int = LOOKS,
    ) -> Altered:
        """Set ``share.paused.topics`` to what ``paused`` makes of the present topics. If another action changes the
        group meanwhile, look again: it may have paused other topics."""
        state = seen or self.alter_configs(group_id).state
        found = self._described(group_id)
        before = topics_in(found.configs.get(PAUSED, ""))
        known = {ALL_TOPICS, *before, *(p.topic for p in found.partitions)}
        known.update(*(member.topics for member in found.members))
        if unknown := [topic for topic in named if topic not in known]:
            raise UnknownSharePartition(group_id=group_id, partition=f"topic {unknown[0]}")
        value = ",".join(dict.fromkeys(paused(before)))
        try:
            return self.alter_configs(group_id, {PAUSED: value}, execute=execute, reason=reason, seen=state)
        except GroupChanged as error:
            if seen or looks <= 1 or error.fields.get("made_anew"):
                raise
            return self._alter_paused(group_id, named, paused, execute, reason, seen, looks - 1)

    def release_member(
        self, group_id: str, member_id: str, *, execute: bool = False, reason: str = "", seen: str = ""
    ) -> Altered:
        """End the member's session now: other members may acquire the records that it holds. Raises MemberNotFound or
        GroupIdNotFound if the member or the group does not exist."""
        if member_id == "":
            raise InvalidRequest(what="member_id is empty: sharegroup groups --describe --members lists the members.")
        return self._act(
            ReleaseMember(group_id=group_id, member_id=member_id, execute=execute, reason=reason, seen=seen)
        )

    def archive_records(
        self,
        group_id: str,
        topic: str,
        partition: int,
        offsets: range,
        *,
        reason: str,
        execute: bool = False,
        seen: str = "",
    ) -> Altered:
        """Gives up records in flight that no member holds. Their dead letters say the reason as well.

        Raises:
            RecordsHeld: a member holds one of the records.
            NotInFlight: there is no such record in flight.
            InvalidRequest: there is no reason, or the offsets are no range.
            GroupIdNotFound, UnknownSharePartition: the group or the share partition does not exist."""
        how = {"execute": execute, "reason": reason, "seen": seen}
        return self._decide("archive", group_id, (topic, partition), offsets, **how)

    def release_records(
        self,
        group_id: str,
        topic: str,
        partition: int,
        offsets: range,
        *,
        reason: str = "",
        execute: bool = False,
        seen: str = "",
    ) -> Altered:
        """Make records in flight available now: out of quarantine, and without a backoff or delay. Their tries count
        from 0 again, and a member that holds them loses the lock.

        Raises:
            NotInFlight: there is no such record in flight.
            GroupIdNotFound, UnknownSharePartition: the group or the share partition does not exist."""
        how = {"execute": execute, "reason": reason, "seen": seen}
        return self._decide("release", group_id, (topic, partition), offsets, **how)

    def _decide(self, decision: str, group_id: str, where: tuple[str, int], offsets: range, **how: Any) -> Altered:
        if not isinstance(offsets, range):
            raise TypeError(f"offsets is a range, as range(5, 8), and {offsets!r} is of type {type(offsets).__name__}")
        if not offsets or offsets.step != 1:
            wrong = "are no neighbouring offsets" if offsets else "has no offset"
            raise InvalidRequest(what=f"{offsets} {wrong}: write range(5, 8) for the offsets 5 to 7.")
        named: dict[str, Any] = {"decision": decision, "group_id": group_id, "topic": where[0], "partition": where[1]}
        return self._ask(DecideRecords(**named, first=offsets[0], last=offsets[-1], **how))

    def _act(self, request: Action[Answer], looks: int = LOOKS) -> Answer:
        """Send an action, and return its answer. The request carries an id, so that the action runs once. The request
        also carries the group's present state, so that a late request changes neither a group that another action has
        changed nor a new group of the same name."""
        self._check(request)
        look = self._ask(msgspec.structs.replace(request, execute=False))
        if not request.execute:
            return look
        try:
            return self._ask(
                msgspec.structs.replace(request, action_id=uuid.uuid4().hex, seen=request.seen or look.state)
            )
        except (GroupIdNotFound, GroupChanged) as error:
            is_gone = isinstance(error, GroupIdNotFound) or error.fields.get("made_anew")
            if is_gone and isinstance(request, DeleteGroup):
                # An earlier try of this request got no answer, and has deleted the group.
                return msgspec.structs.replace(look, executed=True)
            if is_gone or request.seen or looks <= 1:
                raise
            return self._act(request, looks - 1)

    def _check(self, request: Request[Any]) -> None:
        if self._is_closed:
            raise AdminClosed()
        check_request(request)

    @told_to_clients()
    def _find_on_demand(self) -> OnDemand:
        runtime_dir()  # an unusable directory is an error before the brokers are waited for
        metadata = cluster_metadata(self._bootstrap_servers, self._kafka_config, timeout_s=self._timeout_s)
        found = str(metadata.cluster_id or self._bootstrap_servers)
        return OnDemand(
            bootstrap_servers=self._bootstrap_servers,
            kafka_config=self._kafka_config,
            cluster_id=found,
            state_store=store_of(self._state_store, found),
            configs=self._coordinator_configs,
        )

    def _look(self, request: Request[Reply]) -> Reply:
        """Returns the answer of a running coordinator, or else of the state store, if it can be read here. To ask
        another host for its group, a coordinator is started on this host. If the principal may not ask that host, the
        copy in the log is read."""
        self._check(request)
        try:
            return self._looked(request)
        except HostTopicNotAuthorized:
            return self._read(request, asks_owners=False)

    def _looked(self, request: Request[Reply]) -> Reply:
        if not self._bootstrap_servers:
            return self._ask(request)
        if self._on_demand is None:
            try:
                return self._ask(request)
            except CoordinatorUnreachable:
                return self._read(request)
        # Check whether a coordinator runs only if it does not answer: the check takes a connection and a call.
        if (reply := self._client.ask_connected(request, self._answer_timeout_s)) is not None:
            return reply
        if not self._on_demand.is_running():
            with contextlib.suppress(NotCoordinator):
                return self._read(request)
        return self._ask(request)

    @told_to_clients()
    def _ask(self, request: Request[Reply], group_id: str = "") -> Reply:
        self._check(request)
        group_id = request.group_id if isinstance(request, GroupRequest) else group_id
        try:
            is_down = time.monotonic() < self._down_until_s
            answer = self._client.ask(request, group_id, once=is_down, answer_timeout_s=self._answer_timeout_s)
        except CoordinatorUnreachable:
            self._down_until_s = time.monotonic() + DOWN_S
            raise
        self._down_until_s = 0.0
        return answer

    @told_to_clients()
    def _read(self, request: Request[Reply], *, asks_owners: bool = True) -> Reply:
        endpoint_path = str(self._on_demand.endpoint_path) if self._on_demand is not None and asks_owners else ""
        with self._opening:
            if endpoint_path not in self._readers:
                self._readers[endpoint_path] = self._read_store(
                    LaunchSettings(
                        bootstrap_servers=self._bootstrap_servers,
                        kafka_config=dict(self._kafka_config),
                        state_store=self._state_store,
                        configs=self._coordinator_configs,
                        endpoint_path=endpoint_path,
                    )
                )
        answer: Reply = self._readers[endpoint_path](request)
        return answer

    def _listed_by_owner(self, group_ids: list[str]) -> tuple[GroupListing, ...]:
        """Returns what the coordinator of these groups lists of them; nothing if that coordinator gives no answer."""
        request = ListGroups(group_ids=tuple(group_ids), group_id=group_ids[0])
        timeout_s = min(self._answer_timeout_s, OWNERS_S)
        with contextlib.suppress(ShareGroupError):
            return self._client.ask(request, request.group_id, once=True, answer_timeout_s=timeout_s).groups
        return ()

    def _described(self, group_id: str) -> GroupDescription:
        try:
            return self._look(DescribeGroup(group_id=group_id))
        except GroupIdNotFound:
            return GroupDescription(group_id=group_id, state="DEAD", incarnation="")
