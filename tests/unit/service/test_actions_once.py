"""An administrator's action is carried out once: sent twice, late, after a crash, after a takeover, in both stores."""

import msgspec
import pytest

from coordinator.admin.admin import Admin
from coordinator.client.connection import NoAnswer, Unreachable
from coordinator.client.endpoints import Endpoints
from coordinator.config.group_keys import PAUSED
from coordinator.config.secret_files import TOKEN_VARIABLE
from coordinator.core.commands import actions
from coordinator.core.log_records import ActionDone
from coordinator.core.replays import group_replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import (
    Altered,
    AlteredOffsets,
    AlterGroupConfigs,
    AlterOffsets,
    DecideRecords,
    DeleteGroup,
    DeleteOffsets,
    Effect,
    OffsetChanges,
    ReleaseMember,
)
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupChanged, GroupIdNotFound, ShareGroupError
from coordinator.protocol.messages import DescribeGroup, Done, LeaveGroup
from coordinator.service.stores.store import StoreOutcomeUnknown
from tests.support import running_service
from tests.support.fake_cluster import cluster_with_orders
from tests.support.running_service import held

GROUP = {"group_id": "billing"}
ONCE = {**GROUP, "execute": True, "action_id": "a1"}
LIMIT = "share.delivery.count.limit"


def serving():
    """A service with a topic of a hundred records."""
    return running_service.serving(cluster_with_orders(end=100))


@pytest.fixture
def cluster():
    return cluster_with_orders(end=100)


def load_again(running):
    """The group as another owner, or the next process, loads it."""
    running.engine._forget("billing")


def working(running):
    """m1 holds the records 0 to 99."""
    running.join(starting_offsets="earliest")
    plan = running.next()
    running.start(plan.plan_id)
    return plan.plan_id


def done(running, *, rests):
    """m1 has done all records, and has left, if it ``rests``."""
    running.next(working(running))
    if rests:
        running.ask(LeaveGroup)


# --- twice


def test_a_forced_reset_that_is_sent_twice_delivers_records_again_once():
    for loads in (False, True):
        with serving() as running:
            first = working(running)
            running.next(first)
            reset = AlterOffsets(**ONCE, to="earliest", force=True)
            answer = running.admin.handle(reset)
            again = running.next(first)
            assert held(again) == {("orders", 0): [(0, 99)]}
            running.start(again.plan_id)
            assert not running.next(again.plan_id).plan_id
            if loads:
                load_again(running)
                running.join()
            assert running.admin.handle(reset) == answer
            assert not running.next(again.plan_id).plan_id, "the records were done"


def dying(append, appended):
    """As ``append``; the coordinator dies after it, before it knows."""

    def dies(appends, now_ms):
        append(appends, now_ms)
        if any(each.data for each in appends.values()):
            appended.append(appends)
            raise StoreOutcomeUnknown("the coordinator died before it knew")

    return dies


ACTIONS = {
    "reset": lambda: AlterOffsets(**ONCE, to="latest"),
    "shift": lambda: AlterOffsets(**ONCE, to="shift", value=-7),
    "delete offsets": lambda: DeleteOffsets(**ONCE, topics=("orders",)),
    "configs": lambda: AlterGroupConfigs(**ONCE, set={LIMIT: "7"}),
    "pause": lambda: AlterGroupConfigs(**ONCE, set={PAUSED: "*"}),
}


def test_an_action_is_carried_out_once_though_a_crash_loses_its_answer():
    """The coordinator dies between the append and the answer; the next one loads the group from the log."""
    for name in ACTIONS:
        with serving() as running:
            done(running, rests=True)
            append, appended = running.store.append, []
            running.store.append = dying(append, appended)
            with pytest.raises(CoordinatorNotAvailable):
                running.admin.handle(ACTIONS[name]())
            running.store.append = append
            load_again(running)
            before = running.service.handle(DescribeGroup(**GROUP))
            assert running.admin.handle(ACTIONS[name]()).executed
            assert running.service.handle(DescribeGroup(**GROUP)) == before
            assert len(appended) == 1


def test_an_action_that_was_refused_may_be_sent_again(running):
    working(running)
    with pytest.raises(ShareGroupError):
        running.admin.handle(AlterOffsets(**ONCE, to="latest"))
    running.ask(LeaveGroup)
    assert running.admin.handle(AlterOffsets(**ONCE, to="latest")).executed
    assert running.start_offsets() == {("orders", 0): 100}


def test_records_released_by_hand_twice_stay_with_who_acquired_them_since():
    with serving() as running:
        working(running)
        release = DecideRecords(**ONCE, decision="release", topic="orders", partition=0, first=0, last=9)
        running.admin.handle(release)
        running.join("m2")
        taken = running.next(member="m2")
        running.start(taken.plan_id, "m2")
        assert held(taken) == {("orders", 0): [(0, 9)]}
        assert running.admin.handle(release).executed
        running.join("m3")
        assert not running.next(member="m3").plan_id


def test_a_repeated_answer_needs_no_broker_and_names_the_same_changes(running, monkeypatch):
    done(running, rests=True)
    answer = running.admin.handle(AlterOffsets(**ONCE, to="earliest"))
    monkeypatch.setattr(running.cluster, "offsets", None)
    assert running.admin.handle(AlterOffsets(**ONCE, to="earliest")) == answer
    assert answer.partitions[0].before == 100


def test_a_group_remembers_its_last_actions_in_snapshots_too(running, monkeypatch):
    monkeypatch.setattr(group_replay, "ACTIONS_KEPT", 3)
    done(running, rests=True)
    for number in range(5):
        action = {**ONCE, "action_id": f"a{number}"}
        running.admin.handle(AlterGroupConfigs(**action, set={LIMIT: str(5 + number % 2)}))
    running.engine._snapshot("billing", 0)
    load_again(running)
    running.service.handle(DescribeGroup(**GROUP))
    assert list(running.engine.groups["billing"].actions) == ["a2", "a3", "a4"]


LONG = AlteredOffsets(topic="orders", topic_id="T", partition=0, before=1, after=2)


@pytest.mark.parametrize(
    ("answer", "short"),
    [
        (Altered(executed=True, effects=(Effect("limit", "5", "9"),) * 3, notes=("first",)), {"effects": ()}),
        (OffsetChanges(executed=True, partitions=(LONG,) * 3, notes=("first",)), {"partitions": ()}),
    ],
)
def test_a_long_answer_of_either_kind_is_kept_but_for_its_list(monkeypatch, answer, short):
    command, size = actions.RememberAction(action_id="a1", answer=answer), len(msgspec.json.encode(answer))
    note = "An earlier try of this request did it. Its 3 change(s) are not listed: the answer is too long to be kept."
    for most, kept in (size, answer), (size - 1, msgspec.structs.replace(answer, notes=("first", note), **short)):
        monkeypatch.setattr(actions, "MOST_ANSWER_BYTES", most)
        remembered = actions.remember_action(ShareGroup("billing"), command, 0)
        assert remembered.records == (ActionDone(action_id="a1", answer=msgspec.json.encode(kept)),)
        assert remembered.reply == Done()


def test_a_dry_run_of_an_action_that_was_done_is_computed_anew(running):
    done(running, rests=True)
    reset = {"action_id": "a1", "to": "offset", "value": 50}
    assert running.admin.handle(AlterOffsets(**GROUP, **reset, execute=True)).executed
    shown = running.admin.handle(AlterOffsets(**GROUP, **reset))
    assert (shown.executed, [(each.before, each.after) for each in shown.partitions]) == (False, [(50, 50)])


# --- late


def seen(running, action):
    return running.admin.handle(action(**GROUP)).state


def test_an_action_that_arrives_after_another_one_is_refused():
    for to in ("earliest", "latest"):
        with serving() as running:
            done(running, rests=True)
            late = AlterOffsets(**{**ONCE, "action_id": "late"}, to=to, seen=seen(running, AlterOffsets))
            running.admin.handle(AlterOffsets(**ONCE, to="offset", value=50))
            with pytest.raises(GroupChanged, match="another action was carried out"):
                running.admin.handle(late)
            assert running.start_offsets() == {("orders", 0): 50}


def test_a_group_made_anew_is_not_deleted_by_a_late_request():
    with serving() as running:
        done(running, rests=True)
        delete = DeleteGroup(**ONCE, seen=seen(running, DeleteGroup))
        running.admin.handle(delete)
        with pytest.raises(GroupIdNotFound):
            running.admin.handle(delete)
        running.join(process="another")
        running.ask(LeaveGroup)
        with pytest.raises(GroupChanged, match="deleted and created anew"):
            running.admin.handle(delete)
        assert running.service.handle(DescribeGroup(**GROUP)).members


def test_the_session_of_a_member_that_joined_again_is_not_ended_late():
    with serving() as running:
        working(running)
        action = ReleaseMember(
            **ONCE, member_id="m1", seen=running.admin.handle(ReleaseMember(**GROUP, member_id="m1")).state
        )
        running.join(process="another")
        with pytest.raises(GroupChanged, match="joined again"):
            running.admin.handle(action)


def test_records_that_were_acquired_since_are_not_released_late():
    with serving() as running:
        working(running)
        fields = {"decision": "release", "topic": "orders", "partition": 0, "first": 0, "last": 9}
        state = running.admin.handle(DecideRecords(**GROUP, **fields)).state
        running.ask(LeaveGroup)
        running.join("m2")
        assert running.next(member="m2").plan_id
        with pytest.raises(GroupChanged, match="records were acquired or done"):
            running.admin.handle(DecideRecords(**ONCE, **fields, seen=state))


def release(running, first, last, **more):
    """Release records of orders-0 by hand, unless ``more`` makes it a dry run."""
    fields = {"decision": "release", "topic": "orders", "partition": 0, "first": first, "last": last}
    return running.admin.handle(DecideRecords(**{**ONCE, "action_id": f"{first}-{last}", **fields, **more}))


def test_a_change_behind_the_first_of_several_delivery_counts_is_seen():
    with serving() as running:
        working(running)
        release(running, 0, 9)
        running.join("m2")
        assert held(running.next(member="m2")) == {("orders", 0): [(0, 9)]}
        first, state = (release(running, *range_, execute=False).state for range_ in ((0, 9), (0, 99)))
        running.ask(LeaveGroup)
        running.join("m3")
        assert held(running.next(member="m3")) == {("orders", 0): [(10, 99)]}
        with pytest.raises(GroupChanged) as raised:
            release(running, 0, 99, seen=state)
        assert raised.value.fields == {"group_id": "billing", "what": "records were acquired or done"}
        assert release(running, 0, 9, action_id="again", seen=first).executed


def test_an_unchanged_state_is_no_reason_to_refuse_an_action():
    with serving() as running:
        working(running)
        alone = ReleaseMember(**ONCE, member_id="m1")
        shown = running.admin.handle(ReleaseMember(**GROUP, member_id="m1"))
        assert running.admin.handle(msgspec.structs.replace(alone, seen=shown.state)).executed
        with pytest.raises(GroupChanged) as raised:
            release(running, 0, 9, seen=shown.state)
        assert raised.value.fields == {"group_id": "billing", "what": "another action was carried out"}


def test_a_join_that_is_sent_again_leaves_later_configs():
    with serving() as running:
        running.join(configs={LIMIT: "5"})
        running.admin.handle(AlterGroupConfigs(**ONCE, set={LIMIT: "9"}))
        running.join(configs={LIMIT: "5"})
        assert running.service.handle(DescribeGroup(**GROUP)).configs == {LIMIT: "9"}
        running.join(process="another", configs={LIMIT: "5"})
        assert running.service.handle(DescribeGroup(**GROUP)).configs == {LIMIT: "5"}


# --- the client


class Line:
    """A connection to an administration in this process, that loses the answers of some requests that it executes."""

    def __init__(self, admin, losses):
        self.admin, self.losses, self.sent = admin, losses, []

    def call(self, request, timeout_s, request_id):
        self.sent.append(request)
        answer = self.admin.handle(request)
        if request.execute and self.losses:
            raise self.losses.pop(0)
        return answer

    def close(self):
        """Does nothing: there is no connection."""


@pytest.fixture
def line(running, monkeypatch):
    line = Line(running.admin, [])
    monkeypatch.setenv(TOKEN_VARIABLE, "t" * 40)
    monkeypatch.setattr(Endpoints, "connect", lambda self, group_id="": line)
    return line


LOST = [NoAnswer("FlightTimedOutError"), CoordinatorNotAvailable(**GROUP, reason="died", outcome_unknown=True)]


@pytest.mark.parametrize("loss", LOST)
def test_the_tries_of_one_action_have_one_id(running, line, loss):
    done(running, rests=True)
    line.losses = [loss]
    with Admin({"share.coordinator.endpoint": "127.0.0.1:1"}) as admin:
        assert admin.reset_offsets("billing", shift_by=-10, execute=True).executed
    assert running.start_offsets() == {("orders", 0): 90}
    first, again = [request for request in line.sent if request.execute]
    assert first == again
    assert first.action_id


@pytest.mark.parametrize("loss", LOST)
@pytest.mark.parametrize("anew", [False, True])
def test_a_lost_answer_of_a_deletion_touches_no_new_group(running, line, monkeypatch, loss, anew):
    done(running, rests=True)
    line.losses = [loss]
    if anew:
        connect = Endpoints.connect

        def comes_again(self, group_id=""):
            if len(line.sent) == 2:
                running.join(process="another")
                running.ask(LeaveGroup)
            return connect(self, group_id)

        monkeypatch.setattr(Endpoints, "connect", comes_again)
        line.losses = [Unreachable("gone")]
    with Admin({"share.coordinator.endpoint": "127.0.0.1:1"}) as admin:
        assert admin.delete_group("billing", execute=True).executed
    assert ("billing" in running.engine.groups and running.partitions() != {}) == anew


def test_a_group_that_changes_meanwhile_is_looked_at_again(running, line):
    done(running, rests=True)
    looks = line.admin

    class Meddled:
        def __init__(self):
            self.left = 2

        def handle(self, request):
            answer = looks.handle(request)
            if not request.execute and self.left:
                self.left -= 1
                looks.handle(
                    AlterGroupConfigs(**{**ONCE, "action_id": f"other{self.left}"}, set={LIMIT: str(7 + self.left)})
                )
            return answer

    line.admin = Meddled()
    with Admin({"share.coordinator.endpoint": "127.0.0.1:1"}) as admin:
        assert admin.reset_offsets("billing", execute=True).executed
        with pytest.raises(GroupChanged):
            admin.reset_offsets("billing", execute=True, seen="other.state")
