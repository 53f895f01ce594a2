"""The promises of every state store. A store's test module makes a subclass of StoreContract with two fixtures; its
attributes are the differences between stores. No other test runs on more than one store."""

from collections.abc import Callable
from typing import Literal

import pytest

from coordinator.core.share_group import ShareGroup
from coordinator.service.stores.store import Store, StoreOutcomeUnknown, StorePartlyFailed, StoreRefused
from tests.support.store_writes import append, snapshot

Reopen = Callable[[], Store]
Fault = Literal["refused", "doubtful, not written", "doubtful, written"]
BreakNext = Callable[[Store, Fault], None]

faults = pytest.mark.parametrize("how", ["refused", "doubtful, not written", "doubtful, written"])


class StoreContract:
    """`reopen()` opens the store; called again, it lets go of the one before (as a dead process does) and opens it
    anew, on what was durable. `break_next(store, how)`: the store's next write fails so."""

    REFUSED_SNAPSHOT: type[Exception] = StoreRefused
    """The store's error for a refused snapshot."""
    SOLE_OWNER = False
    """Whether one process owns all groups of the store: no other process can read a group, or ask for it."""

    @pytest.fixture
    def reopen(self) -> Reopen:
        raise NotImplementedError

    @pytest.fixture
    def break_next(self) -> BreakNext:
        raise NotImplementedError

    def own(self, store: Store, *group_ids: str) -> Store:
        """Claims and loads the groups, as their owner must before it appends. Returns the store."""
        for group_id in group_ids or ("billing",):
            store.claim(group_id)
            list(store.load(group_id))
        return store

    def records(self, store: Store, group_id: str = "billing") -> list[bytes]:
        """As loaded: what lies before a snapshot does not count."""
        found: list[bytes] = []
        for _, data in store.load(group_id):
            if data is None:
                found.clear()
            else:
                found.append(data)
        return found

    def test_an_unknown_group_has_no_records(self, reopen):
        assert self.records(reopen()) == []

    def test_appended_records_are_loaded_in_order_by_the_next_owner(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a", b"b"]})
        append(store, {"billing": [b"c"]})
        assert self.records(store) == [b"a", b"b", b"c"]
        assert self.records(reopen()) == [b"a", b"b", b"c"]

    def test_groups_are_separate_and_one_append_may_write_several(self, reopen):
        append(self.own(reopen(), "billing", "shipping"), {"billing": [b"a"], "shipping": [b"b", b"c"]})
        store = reopen()
        assert self.records(store, "billing") == [b"a"]
        assert self.records(store, "shipping") == [b"b", b"c"]

    def test_records_are_stored_as_unchanged_bytes(self, reopen):
        data = [b"", bytes(range(256)), b"x" * 2_000_000]
        append(self.own(reopen()), {"billing": data})
        assert self.records(reopen()) == data

    def test_group_ids_are_any_text(self, reopen):
        names = ["a b", "ä/ö", "'; DROP TABLE record; --", "a" * 249]
        append(self.own(reopen(), *names), {name: [name.encode()] for name in names})
        store = reopen()
        assert [self.records(store, name) for name in names] == [[name.encode()] for name in names]

    def test_sequence_numbers_rise_also_over_a_snapshot_and_a_new_owner(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a", b"b"]})
        before = [sequence for sequence, _ in store.load("billing")]
        snapshot(store, "billing", [b"s"])
        store = self.own(reopen())
        append(store, {"billing": [b"c"]})
        after = [sequence for sequence, _ in store.load("billing") if sequence not in before]
        assert before == sorted(set(before))
        assert after == sorted(set(after))
        assert min(after) > max(before)

    def test_a_snapshot_replaces_the_groups_log_and_no_others(self, reopen):
        store = self.own(reopen(), "billing", "shipping")
        append(store, {"billing": [b"a", b"b"], "shipping": [b"x"]})
        snapshot(store, "billing", [b"s", b"t"])
        append(store, {"billing": [b"c"]})
        store = reopen()
        assert self.records(store, "billing") == [b"s", b"t", b"c"]
        assert self.records(store, "shipping") == [b"x"]

    def test_loading_twice_returns_the_same_records(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a"]})
        assert self.records(store) == self.records(store)

    def test_an_unfinished_load_changes_nothing(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a", b"b"]})
        next(iter(store.load("billing")))
        append(self.own(store), {"billing": [b"c"]})
        assert self.records(store) == [b"a", b"b", b"c"]

    def test_an_empty_append_proves_ownership_and_leaves_no_record(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a"]})
        append(store, {"billing": []})
        assert self.records(store) == [b"a"]

    def test_a_group_can_be_let_go_of_and_taken_again(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a"]})
        store.release("billing")
        append(self.own(store), {"billing": [b"b"]})
        assert self.records(store) == [b"a", b"b"]

    def test_a_look_without_ownership_changes_nothing(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a", b"b"]})
        seen = store.peek("billing")
        assert (seen is None) if self.SOLE_OWNER else ([data for _, data in seen] == [b"a", b"b"])
        append(store, {"billing": [b"c"]})
        assert self.records(store) == [b"a", b"b", b"c"]

    def test_other_processes_ask_for_a_group_unless_the_store_has_one_owner(self, reopen):
        store = self.own(self.own(reopen()))
        assert store.kept("billing")
        assert (store.tenure("billing") == "") == self.SOLE_OWNER

    def test_a_snapshot_in_steps_has_what_is_appended_between_its_steps(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a"]})
        tail: list[bytes] = []
        steps = store.snapshot_in_steps(ShareGroup("billing"), iter([[b"s"], [b"t"]]), tail, now_ms=0)
        next(steps)
        append(store, {"billing": [b"b"]})
        tail.append(b"b")
        list(steps)
        assert self.records(reopen()) == [b"s", b"t", b"b"]

    def test_an_unfinished_snapshot_in_steps_changes_nothing(self, reopen):
        store = self.own(reopen())
        append(store, {"billing": [b"a"]})
        next(store.snapshot_in_steps(ShareGroup("billing"), iter([[b"s"], [b"t"]]), [], now_ms=0))
        assert self.records(reopen()) == [b"a"]

    # --- writes that fail

    @faults
    @pytest.mark.parametrize("by", ["the same owner", "the next owner"])
    def test_a_failed_append_is_loaded_whole_or_not_at_all(self, reopen, break_next, how, by):
        store = self.own(reopen())
        append(store, {"billing": [b"a"]})
        break_next(store, how)
        with pytest.raises(failure(how)):
            append(store, {"billing": [b"b", b"c"]})
        store = self.own(store if by == "the same owner" else reopen())
        found = self.records(store)
        assert found == ([b"a", b"b", b"c"] if how == "doubtful, written" else [b"a"])
        append(store, {"billing": [b"d"]})
        assert self.records(reopen()) == [*found, b"d"]

    @faults
    def test_a_failed_snapshot_leaves_the_old_log_or_the_new(self, reopen, break_next, how):
        store = self.own(reopen())
        append(store, {"billing": [b"a", b"b"]})
        break_next(store, how)
        with pytest.raises(self.REFUSED_SNAPSHOT if how == "refused" else failure(how)):
            snapshot(store, "billing", [b"s", b"t"])
        self.own(store)
        found = self.records(store)
        assert found == ([b"s", b"t"] if how == "doubtful, written" else [b"a", b"b"])
        append(store, {"billing": [b"c"]})
        snapshot(store, "billing", [b"u"])
        assert self.records(reopen()) == [b"u"]

    @faults
    def test_a_failed_append_is_whole_or_absent_in_each_group(self, reopen, break_next, how):
        store = self.own(reopen(), "billing", "shipping")
        append(store, {"billing": [b"a"], "shipping": [b"x"]})
        break_next(store, how)
        with pytest.raises((StoreRefused, StoreOutcomeUnknown, StorePartlyFailed)) as raised:
            append(store, {"billing": [b"b", b"c"], "shipping": [b"y", b"z"]})
        partly = isinstance(raised.value, StorePartlyFailed)
        failed = raised.value.failed if partly else dict.fromkeys(("billing", "shipping"), raised.value)
        assert all(isinstance(error, failure(how)) for error in failed.values())
        store = self.own(reopen(), "billing", "shipping")
        for group_id, first, rest in (("billing", b"a", [b"b", b"c"]), ("shipping", b"x", [b"y", b"z"])):
            written = group_id not in failed or how == "doubtful, written"
            assert self.records(store, group_id) == [first, *(rest if written else [])]

    @faults
    def test_a_proof_that_failed_leaves_nothing(self, reopen, break_next, how):
        store = self.own(reopen())
        append(store, {"billing": [b"a"]})
        break_next(store, how)
        with pytest.raises(failure(how)):
            append(store, {"billing": []})
        assert self.records(self.own(store)) == [b"a"]


def failure(how: Fault) -> type[Exception]:
    return StoreRefused if how == "refused" else StoreOutcomeUnknown
