"""Small worlds by what is in them; tests and known mistakes share them."""

from __future__ import annotations

from tests.protocol.setting import Setting

TWO = Setting()
ONE_RECORD = Setting(records=1, most=(1, 1))
ORDERED = Setting(ordered=True)
SLICES = Setting(limit=3, base=1)
CONSUMER = Setting(records=1, most=(1,), fetches=2, releases=True)
LIMITED = Setting(in_flight=1)
LIMITED_TO_TWO_OF_THREE = Setting(records=1, partitions=3, most=(1, 1, 1), in_flight=2)
WORK = Setting(records=1, most=(1,), fetches=2, signals=2)
STOPPED = Setting(records=3, most=(1,), fetches=1)
WITHOUT_START = Setting(records=1, most=(1, 1), without_start=True)

REJECTS = Setting(sink=("accept",), rejects=1)
ROLLS = Setting(records=1, most=(1,), sink=("accept", "release"))
SILENT = Setting(records=1, most=(1,), sink=("accept", "nothing"))
REPLACED = Setting(records=1, most=(1,), sink=("accept", "release", "reject"), replaces=True)
SILENT_AND_REPLACED = Setting(records=1, most=(1,), sink=("accept", "nothing"), replaces=True)

IMPLICIT = Setting(records=2, most=(2,), sink=("nothing",), rejects=1, implicit=True, replaces=True)
OWN_MODE = Setting(records=1, most=(1,), sink=("accept", "nothing"), own_mode=True)
TWO_SINKS = Setting(records=1, most=(1, 1), limit=2, sink=("accept", "nothing"))
DEFERS = Setting(records=1, partitions=2, most=(2, 1), limit=2, sink=("accept", "defer"), replaces=True)
DEFERS_IN_ORDER = Setting(
    records=2, partitions=2, most=(4, 2), limit=2, ordered=True, sink=("accept", "defer"), replaces=True
)
EXPIRES = Setting(ttl=True)
EXPIRES_IN_ORDER = Setting(ttl=True, ordered=True)
EXPIRES_WITH_CONSUMER = Setting(records=1, most=(1,), fetches=2, releases=True, ttl=True)
HOSTS = Setting(records=1, most=(1, 1), hosts="asked")
HOSTS_NOT_ASKED = Setting(records=1, most=(1, 1), hosts="not asked")
