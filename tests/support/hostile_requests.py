"""Bodies of requests that nobody should send: of each request's own shape with values at and beyond every edge, and
mutated bytes."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

NUMBERS = [0, 1, 2, 5, 99, 100, -1, -5, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30]
TEXTS = ["billing", "m1", "orders", "id-1", "q", "0", "1", "p1", "archive", "release", "member", "latest", "offsets"]
TEXTS += [
    "earliest",
    "",
    "\x00",
    "\x1b[2J",
    "é\u202e",
    "x" * 300,
    "__consumer_offsets",
    "share-group-state",
    "i.1",
    "9" * 25,
]
TEXTS += ["share.release.backoff.ms", "share.delivery.count.limit", "explicit", "-1", "ACQUIRED", ".*", "(", "\ud800"]

Usual = dict[str, list[Any]]
USUAL: Usual = {
    "group_id": ["billing"],
    "member_id": ["m1"],
    "member_epoch": [1],
    "topic": ["orders"],
    "topic_id": ["id-1"],
    "partition": [0],
    "topics": [["orders"]],
    "decision": ["release", "archive"],
    "execute": [True],
    "force": [True],
    "first": [0, 3, 5, 9],
    "last": [0, 2, 5, 9],
    "delivery_count": [1],
    "wait_ms": [0],
}
"""The usual values of fields, by name: a request of an unknown group is refused before the rest of it is checked."""

texts = st.sampled_from(TEXTS).filter(lambda text: text != "\ud800")


def values(kind: inspect.Type, usual: Usual) -> st.SearchStrategy[Any]:
    """JSON values of the type's shape, mostly."""
    if isinstance(kind, inspect.IntType):
        return st.sampled_from(NUMBERS)
    if isinstance(kind, inspect.StrType):
        return texts
    if isinstance(kind, inspect.BoolType):
        return st.booleans()
    if isinstance(kind, inspect.UnionType):
        return st.one_of(*(values(each, usual) for each in kind.types))
    if isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
        return st.lists(values(kind.item_type, usual), max_size=3)
    if isinstance(kind, inspect.TupleType):
        return st.tuples(*(values(each, usual) for each in kind.item_types)).map(list)
    if isinstance(kind, inspect.NamedTupleType):
        return st.tuples(*(values(field.type, usual) for field in kind.fields)).map(list)
    if isinstance(kind, inspect.DictType):
        return st.dictionaries(texts, values(kind.value_type, usual), max_size=3)
    if isinstance(kind, inspect.StructType):
        required = {f.encode_name: _field(f, usual) for f in kind.fields if f.required}
        optional = {f.encode_name: _field(f, usual) for f in kind.fields if not f.required}
        tag = {} if kind.tag is None else {kind.tag_field: kind.tag}
        return st.fixed_dictionaries(required, optional=optional).map(lambda fields: {**tag, **fields})
    if isinstance(kind, inspect.NoneType):
        return st.none()
    raise AssertionError(f"no values of {kind}")


def _field(field: inspect.Field, all_usual: Usual) -> st.SearchStrategy[Any]:
    usual = all_usual.get(field.name)
    any_value = values(field.type, all_usual)
    if usual is None:
        return any_value
    return st.integers(0, 9).flatmap(lambda chance: any_value if chance == 7 else st.sampled_from(usual))


def bodies(request: type[Any], usual: Usual) -> st.SearchStrategy[bytes]:
    """Bodies of the request, as JSON; ``usual``: what its fields mostly have, by name."""
    return values(inspect.type_info(request), usual).map(msgspec.json.encode)


@st.composite
def mutated(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes with some of them changed, taken out, doubled or cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.integers(0, 5))
        if how == 0:
            data[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif how == 1:
            data[at : at + 8] = draw(
                st.sampled_from([b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f\0\0\0\0", b"\0" * 7 + b"\x40"])
            )
        elif how == 2:
            del data[at : at + draw(st.integers(1, 64))]
        elif how == 3:
            data[at:at] = data[at : at + draw(st.integers(1, 64))]
        elif how == 4:
            data = data[:at]
        else:
            data[at:at] = draw(st.binary(max_size=16))
    return bytes(data)
