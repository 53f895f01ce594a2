"""Wrong arguments of the Admin client and of a listener are errors that say how they are written, before any call."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.admin.arguments import changes
from coordinator.protocol.errors import AdminClosed, InvalidGroupId, InvalidRequest, InvalidReset
from coordinator.protocol.group_ids import check_group_id
from coordinator.protocol.option_errors import InvalidOption, MissingOption
from sharegroup import Admin, ShareGroupListener

CONF = {"bootstrap.servers": "localhost:1", "share.coordinator.endpoint": "localhost:1"}
TOKEN = "t" * 20


def admin() -> Admin:
    return Admin(CONF, token=TOKEN, timeout_ms=1)


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "Admin(text)": (lambda: Admin("localhost:9092"), "conf is a mapping of texts, as {'NAME': 'VALUE'}, and"),  # type: ignore[arg-type]
    "Admin(None)": (lambda: Admin(None), "this is of type NoneType"),  # type: ignore[arg-type]
    "Admin({1: 2})": (lambda: Admin({1: "2"}), "1 is of type int"),  # type: ignore[dict-item]
    "Admin(bytes)": (lambda: Admin({"client.id": b"a"}), "client.id is a text, and its value is of type bytes"),
    "ShareGroupListener(text)": (lambda: ShareGroupListener("localhost:9092"), "conf is a mapping"),  # type: ignore[arg-type]
    "describe_groups": (lambda: admin().describe_groups("billing"), r"group_ids is a list.*write \['billing'\]"),
    "list_groups": (lambda: admin().list_groups("EMPTY"), r"states is a list.*write \['EMPTY'\]"),
    "list_offsets": (lambda: admin().list_offsets("billing", "orders"), "topics is a list"),
    "in_flight": (lambda: admin().in_flight("billing", only_state="HELD"), "only_state is a list"),
    "reset_offsets": (lambda: admin().reset_offsets("billing", topics="orders"), "topics is a list"),
    "delete_offsets": (lambda: admin().delete_offsets("billing", "orders"), "topics is a list"),
    "pause": (lambda: admin().pause("billing", "orders"), r"topics is a list.*write \['orders'\]"),
    "resume(number)": (lambda: admin().resume("billing", 5), "5 is of type int"),  # type: ignore[arg-type]
    "delete_offsets(number)": (lambda: admin().delete_offsets("billing", 5), "5 is of type int"),  # type: ignore[arg-type]
    "alter_configs": (lambda: admin().alter_configs("billing", None), "configs is a mapping"),  # type: ignore[arg-type]
    "alter_configs(unset)": (lambda: admin().alter_configs("billing", unset="share.x"), "unset is a list"),
    "list_offsets(None)": (lambda: admin().list_offsets(None), "group_id is a text, and None is of type NoneType"),  # type: ignore[arg-type]
    "list_offsets(list)": (lambda: admin().list_offsets(["a"]), r"group_id is a text, and \['a'\] is of type list"),  # type: ignore[arg-type]
    "reset_offsets(execute)": (lambda: admin().reset_offsets("a", execute="no"), "execute is True or False, and 'no'"),  # type: ignore[arg-type]
    "reset_offsets(reason)": (lambda: admin().reset_offsets("a", reason=5), "reason is a text, and 5 is of type int"),  # type: ignore[arg-type]
    "reset_offsets(shift_by)": (lambda: admin().reset_offsets("a", shift_by="5"), "shift_by is a whole number"),  # type: ignore[arg-type]
    "delete_group": (lambda: admin().delete_group(["a"]), "group_id is a text"),  # type: ignore[arg-type]
    "history": (lambda: admin().history("a", "orders", "0", 5), "partition is a whole number, and '0' is of type str"),  # type: ignore[arg-type]
    "in_flight(held)": (lambda: admin().in_flight("a", held_longer_than_ms="10 min"), "held_longer_than_ms is a whole"),  # type: ignore[arg-type]
    "archive_records": (lambda: admin().archive_records("a", "orders", 0, [5], reason="x"), "offsets is a range"),  # type: ignore[arg-type]
    "Admin(timeout_ms)": (lambda: Admin(CONF, token=TOKEN, timeout_ms="5"), "timeout_ms is a whole number"),  # type: ignore[arg-type]
    "reset_offsets(topics)": (
        lambda: admin().reset_offsets("a", topics={"orders": 0}),  # type: ignore[dict-item]
        r"topics\['orders'\] is a list of partitions, and 0 is one value: write \[0\]",
    ),
    "alter_configs(value)": (
        lambda: admin().alter_configs("billing", {"share.x": None}),  # type: ignore[dict-item]
        r"no value for share.x: write unset=\['share.x'\]",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_is_an_error_that_says_how_it_is_written(case: str) -> None:
    call, says = CASES[case]
    with pytest.raises(TypeError, match=says):
        call()


@pytest.mark.parametrize("make", [Admin, ShareGroupListener])
def test_a_wrong_address_is_refused_when_the_client_is_made(make: Any) -> None:
    with pytest.raises(InvalidOption, match=r"bootstrap\.servers is wrong: 'http://a:1' is not host:port"):
        make({"bootstrap.servers": "http://a:1"})


@pytest.mark.parametrize("make", [Admin, ShareGroupListener])
def test_a_client_without_brokers_and_endpoint_is_refused(make: Any) -> None:
    with pytest.raises(MissingOption, match=r"at least one broker, or share\.coordinator\.endpoint"):
        make({})


REFUSED: dict[str, tuple[Callable[[Admin], Any], str]] = {
    "timeout_ms": (lambda _: Admin(CONF, token=TOKEN, timeout_ms=0), "timeout_ms=0 can't be used: it is at least 1"),
    "list_groups": (
        lambda admin: admin.list_groups(["Foo"]),
        "FOO is no state of a group: EMPTY, STABLE, DEAD, UNKNOWN",
    ),
    "in_flight": (lambda admin: admin.in_flight("a", limit=0), "limit=0 can't be used"),
    "history": (lambda admin: admin.history("billing", "orders", 0, -5), "offset=-5 can't be used"),
    "reset to a bool": (lambda admin: admin.reset_offsets("billing", True), "no offset"),
    "reset twice": (lambda admin: admin.reset_offsets("a", "latest", shift_by=3), "shift_by is given as well"),
    "reset by place": (lambda admin: admin.reset_offsets("a", {("orders", 0): 5}), "offsets are written"),  # type: ignore[dict-item]
    "set and unset": (
        lambda admin: admin.alter_configs("a", {"share.x": "1"}, ["share.x"]),
        "share.x is in configs and",
    ),
    "no topics": (lambda admin: admin.delete_offsets("a", []), "topics is empty"),
    "no member": (lambda admin: admin.release_member("a", ""), "member_id is empty"),
    "no offsets": (lambda admin: admin.release_records("a", "t", 0, range(5, 5)), r"range\(5, 5\) has no offset"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_out_of_bounds_or_at_odds_are_refused(case: str) -> None:
    call, says = REFUSED[case]
    with pytest.raises((InvalidRequest, InvalidReset), match=says):
        call(admin())


def test_configs_are_set_without_the_blanks_around_their_values() -> None:
    assert changes({"share.order": " partition "}, ["share.session.timeout.ms"]) == (
        {"share.order": "partition"},
        ("share.session.timeout.ms",),
    )


def test_a_closed_admin_is_named() -> None:
    client = admin()
    client.close()
    for call in (client.list_groups, client.__enter__, lambda: client.delete_group("billing")):
        with pytest.raises(AdminClosed, match=r"^This Admin client is closed\. Make another one"):
            call()


@pytest.mark.parametrize("text", ["5m", "0x10"])
def test_admin_reads_no_part_of_a_number(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"socket\.timeout\.ms is wrong.*whole number in"):
        Admin({**CONF, "socket.timeout.ms": text})


@pytest.mark.parametrize("group_id", [" billing", "billing ", "bil\tling", "\u2028", "bil\u00a0ling"])
def test_a_group_that_looks_like_another_one_is_refused(group_id: str) -> None:
    with pytest.raises(InvalidGroupId):
        check_group_id(group_id)
