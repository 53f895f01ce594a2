"""Looks at groups: lists, offsets with lag, runs in flight by pages, plans; served, and read from a store that no
coordinator serves."""

from contextlib import closing

import pytest

from coordinator.core.log_records import GroupCreated, PartitionInitialized, RunsChanged, TopicRegistered
from coordinator.core.looks.shown_runs import MOST_LOOKED_AT, MOST_ON_A_PAGE, MOST_WINDOWS, list_in_flight, list_windows
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import (
    GroupListing,
    ListGroups,
    ListInFlight,
    ListOffsets,
    ListPlans,
    ListWindows,
    Window,
)
from coordinator.protocol.errors import GroupIdNotFound, InvalidRequest
from coordinator.protocol.messages import DescribeGroup
from coordinator.protocol.wire import LaunchSettings
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers import read_only
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.handlers.read_only import FileToRead, LooksOnly
from coordinator.service.stores.sqlite_store import SqliteReader
from tests.support.fake_cluster import FakeCluster, cluster_with_orders
from tests.support.running_service import Running

LOOK = {"group_id": "billing"}


class Stored:
    """The groups of a store beside those that are served."""

    def stored_groups(self):
        return [GroupListing(group_id=name, state="EMPTY") for name in ("audit", "billing")]


@pytest.fixture
def running(tmp_path):
    with closing(Running(tmp_path / "state.db", cluster_with_orders(end=100), stored=Stored())) as running:
        yield running


@pytest.fixture
def held(running):
    """A group of a query, which holds 0-9 of orders-0, and has read them, for a sink."""
    running.join(starting_offsets="earliest", client_id="etl", client_host="host-1")
    running.start(running.next(max_records=10).plan_id)
    return running


def test_groups_are_listed_with_their_states_also_those_that_rest(held):
    listed = held.admin.handle(ListGroups()).groups
    assert [(g.group_id, g.state) for g in listed] == [("audit", "EMPTY"), ("billing", "STABLE")]
    only = held.admin.handle(ListGroups(group_ids=("billing",))).groups
    assert [(g.group_id, g.state) for g in only] == [("billing", "STABLE")]


def test_offsets_are_listed_with_lag_and_without_runs(held):
    listed = held.admin.handle(ListOffsets(**LOOK)).partitions
    assert [(p.partition, p.start_offset, p.end_offset, p.lag) for p in listed] == [(0, 0, 10, 100)]
    assert held.admin.handle(ListOffsets(**LOOK, topics=("payments",))).partitions == ()


def test_offsets_are_listed_without_lag_while_the_brokers_are_away(held):
    held.cluster.unreachable = True
    assert [p.lag for p in held.admin.handle(ListOffsets(**LOOK)).partitions] == [None]


def test_an_unknown_state_is_refused_with_the_known_states(held):
    with pytest.raises(InvalidRequest, match="HELD is no state of a record: AVAILABLE, ACQUIRED"):
        held.admin.handle(ListInFlight(**LOOK, states=("HELD",)))


def test_a_look_at_an_unknown_group_is_refused(running):
    for look in (ListOffsets, ListInFlight, ListPlans, ListWindows, DescribeGroup):
        with pytest.raises(GroupIdNotFound):
            handler = running.service if look is DescribeGroup else running.admin
            handler.handle(look(group_id="none"))


def test_a_state_file_without_a_coordinator_is_read_unchanged(held, tmp_path):
    held.close()
    before = (tmp_path / "state.db").read_bytes()
    stored = FileToRead(tmp_path / "state.db")
    admin = AdminService(LooksOnly(stored), held.cluster, stored, TopicDoubts())
    assert [(g.group_id, g.state) for g in admin.handle(ListGroups()).groups] == [("billing", "UNKNOWN")]
    assert [p.lag for p in admin.handle(ListOffsets(**LOOK)).partitions] == [100]
    assert [run.state for run in admin.handle(ListInFlight(**LOOK)).runs] == ["ACQUIRED"]
    with pytest.raises(GroupIdNotFound):
        admin.handle(ListOffsets(group_id="none"))
    assert (tmp_path / "state.db").read_bytes() == before


def test_every_answer_from_a_store_names_the_store(held, tmp_path, monkeypatch):
    (window,) = (Window(topic_id=p.topic_id, partition=0, first=0, last=9) for p in held.partitions().values())
    held.close()
    monkeypatch.setattr(read_only, "KafkaCluster", lambda *_: held.cluster)
    path = tmp_path / "state.db"
    settings = LaunchSettings(
        bootstrap_servers="localhost:9092", kafka_config={}, state_store=f"sqlite:{path}", configs={}
    )
    answer = read_only.read_store(settings)
    for look in (ListGroups(), *(kind(**LOOK) for kind in (ListOffsets, ListInFlight, ListPlans, DescribeGroup))):
        assert answer(look).read_from == f"state file {path}"
    assert [page.read_from for page in answer(ListWindows(**LOOK, windows=(window,))).pages] == [f"state file {path}"]


def test_the_next_page_of_a_group_needs_no_second_replay(held, tmp_path, monkeypatch):
    held.close()
    stored, peek, read, ends = FileToRead(tmp_path / "state.db"), SqliteReader.peek, [], [7]
    monkeypatch.setattr(SqliteReader, "peek", lambda reader, group_id: read.append(group_id) or peek(reader, group_id))
    monkeypatch.setattr(stored, "log_end", lambda group_id: ends[-1])
    admin = AdminService(LooksOnly(stored), held.cluster, stored, TopicDoubts())
    first = admin.handle(ListInFlight(**LOOK)).runs
    assert admin.handle(ListInFlight(**LOOK)).runs == first
    assert read == ["billing"]
    ends.append(8)
    assert admin.handle(ListInFlight(**LOOK)).runs == first
    assert read == ["billing"] * 2, "the log has got longer"
    with pytest.raises(GroupIdNotFound):
        admin.handle(ListInFlight(group_id="none"))
    assert admin.handle(ListInFlight(**LOOK)).runs == first
    assert read == ["billing", "billing", "none", "billing"], "only the last group is kept"


def test_an_empty_state_file_has_no_groups(tmp_path):
    (tmp_path / "state.db").touch()
    stored = FileToRead(tmp_path / "state.db")
    admin = AdminService(LooksOnly(stored), FakeCluster(), stored, TopicDoubts())
    assert admin.handle(ListGroups()).groups == ()
    with pytest.raises(GroupIdNotFound):
        admin.handle(ListOffsets(group_id="billing"))


# --- pages


def group_of(runs, partitions=1):
    """A group whose share partitions each have this many runs, of one record each, every second one acknowledged."""
    group = ShareGroup("billing")
    replay(group, GroupCreated(incarnation="i", topic_ids=True))
    replay(group, TopicRegistered(topic="orders", topic_id="id-1"))
    pieces = tuple(
        (n, n, Run(RecordState.AVAILABLE if n % 2 == 0 else RecordState.ACKNOWLEDGED, 1)) for n in range(runs)
    )
    for partition in range(partitions):
        replay(group, PartitionInitialized(topic_id="id-1", partition=partition, start_offset=0))
        replay(group, RunsChanged(topic_id="id-1", partition=partition, runs=pieces))
    return group


def pages(group, **filters):
    """All pages, by the cursor of the page before."""
    cursor, found = None, []
    while not found or cursor is not None:
        page = list_in_flight(group, ListInFlight(**LOOK, cursor=cursor, **filters), 0)
        found.append([(run.partition, run.first) for run in page.runs])
        cursor = page.cursor
    return found


def test_a_page_looks_at_a_bounded_number_of_runs():
    found = pages(group_of(2 * MOST_LOOKED_AT), states=("ARCHIVING",))
    assert found == [[], []]


def test_the_page_after_a_removed_run_begins_with_the_next_run():
    group = group_of(4)
    cursor = ("id-1", 0, 1)
    assert [run.first for run in list_in_flight(group, ListInFlight(**LOOK, cursor=cursor), 0).runs] == [2]
    assert list_in_flight(group, ListInFlight(**LOOK, cursor=("id-9", 0, 0)), 0).runs == ()


# --- windows


def windows(group, *asked):
    """The offsets of the runs of each window, and where its rest begins."""
    given = [
        Window(topic_id="id-1", partition=p, first=first, last=last, limit=limit) for p, first, last, limit in asked
    ]
    pages = list_windows(group, ListWindows(**LOOK, windows=tuple(given)), 7).pages
    assert {page.now_ms for page in pages} <= {7}
    return [([run.first for run in page.runs], page.cursor and page.cursor[2]) for page in pages]


def test_windows_show_their_runs_in_flight_and_where_the_rest_begins():
    found = windows(
        group_of(20, partitions=2), (1, 3, 9, 10), (0, 0, 19, 2), (0, 10, 10, 5), (0, 50, 60, 5), (9, 0, 9, 5)
    )
    assert found == [([4, 6, 8], None), ([0, 2], 3), ([10], None), ([], None), ([], None)]


def test_windows_together_show_and_look_at_a_bounded_number_of_runs():
    wide = (0, 0, 10**9, 10**9)
    many = windows(group_of(2 * MOST_ON_A_PAGE), *[wide] * 3)
    assert [len(runs) for runs, _ in many] == [MOST_ON_A_PAGE, 0, 0]
    assert [rest for _, rest in many] == [2 * MOST_ON_A_PAGE - 1, 0, 0]
    terminal = group_of(1)
    done = tuple((n, n, Run(RecordState.ACKNOWLEDGED, 1 + n % 2)) for n in range(1, 2 * MOST_LOOKED_AT))
    replay(terminal, RunsChanged(topic_id="id-1", partition=0, runs=done))
    assert windows(terminal, (0, 1, 10**9, 5), wide) == [([], MOST_LOOKED_AT + 1), ([], 0)]
    assert windows(group_of(10), (0, 0, 9, 0), (0, 0, 9, -1)) == [([], 0), ([], 0)]
    with pytest.raises(InvalidRequest, match="1,001 windows are more than 1,000"):
        windows(group_of(1), *[wide] * (MOST_WINDOWS + 1))
