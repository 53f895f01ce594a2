"""The bounds within which groups may choose their timeouts and limits, and the coordinator's defaults of some (KIP-932,
KIP-1240, KIP-1263).

Rule, as in Kafka: a value out of bounds is refused when it is set. A value that was stored under other bounds stays
stored, and counts as the nearest value within the bounds. A default is of groups that set no value; it is not stored,
and a coordinator with another default changes what holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.config.group_keys import GROUP_KEYS
from coordinator.protocol.errors import ConfigConflict, ConfigOutOfBounds

SESSION, HEARTBEAT, ASSIGNMENT = "session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"
WITH_DEFAULT = ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
"""The keys of which the coordinator has a default, too."""


class GroupBounds:
    """Bounds by group key, and ``defaults`` as texts. Keys without an entry have only the bounds and the default of
    their own row in the table."""

    def __init__(
        self, bounds: Mapping[str, tuple[int, int]] | None = None, defaults: Mapping[str, str] | None = None
    ) -> None:
        self._bounds, self.defaults = dict(bounds or {}), dict(defaults or {})

    def __repr__(self) -> str:
        return f"<GroupBounds {self._bounds}>"

    @classmethod
    def of(cls, server: Mapping[str, Any]) -> GroupBounds:
        """The bounds and defaults that the coordinator's own configuration sets. ``server``: its values by attribute
        name. Raises ConfigConflict if a smallest value is above the largest one, a default is out of its bounds, or no
        heartbeat interval could be shorter than the shortest session timeout."""
        bounds, defaults = {}, {}
        for what in (SESSION, HEARTBEAT, ASSIGNMENT, *WITH_DEFAULT):
            low_key, high_key = _keys_of(what)
            low, high = server[low_key.replace(".", "_")], server[high_key.replace(".", "_")]
            if low > high:
                rule = "the smallest value must not be above the largest one"
                raise ConfigConflict(key=low_key, value=low, other=high_key, other_value=high, rule=rule)
            bounds[f"share.{what}"] = (low, high)
            if what not in WITH_DEFAULT:
                continue
            default_key = f"group.share.{what}"
            default = server[default_key.replace(".", "_")]
            for key, bound, is_beyond in ((low_key, low, default < low), (high_key, high, default > high)):
                if is_beyond:
                    rule = "the default must lie within the bounds"
                    raise ConfigConflict(key=default_key, value=default, other=key, other_value=bound, rule=rule)
            if default != GROUP_KEYS[f"share.{what}"].default:
                defaults[f"share.{what}"] = str(default)
        heartbeat_ms, session_ms = bounds[f"share.{HEARTBEAT}"][0], bounds[f"share.{SESSION}"][0]
        if heartbeat_ms >= session_ms:
            raise ConfigConflict(
                key=_keys_of(HEARTBEAT)[0],
                value=heartbeat_ms,
                other=_keys_of(SESSION)[0],
                other_value=session_ms,
                rule="the shortest session must have room for a heartbeat",
            )
        return cls(bounds, defaults)

    def check(self, texts: Mapping[str, str]) -> None:
        """Check configs that a request sets; an empty text unsets one. Raises ConfigOutOfBounds or ConfigTypeMismatch
        if a value is not accepted."""
        for key, (low, high) in self._bounds.items():
            if not (text := texts.get(key, "").strip()):
                continue
            value = GROUP_KEYS[key].parse(text)
            assert isinstance(value, int)
            if not low <= value <= high:
                names = " and ".join(_keys_of(key.removeprefix("share.")))
                raise ConfigOutOfBounds(key=key, value=text, bounds=f"between {low} and {high} ({names})")

    def clamp(self, values: dict[str, Any]) -> None:
        """Bring a group's values within the bounds. ``values``: by attribute name; they are changed in place."""
        for key, (low, high) in self._bounds.items():
            attribute = GROUP_KEYS[key].attribute
            values[attribute] = min(max(values[attribute], low), high)
        if (heartbeat := self._bounds.get(f"share.{HEARTBEAT}")) is not None:
            third_ms = max(values["share_session_timeout_ms"] // 3, heartbeat[0])
            if values["share_heartbeat_interval_ms"] >= values["share_session_timeout_ms"]:
                values["share_heartbeat_interval_ms"] = third_ms


def _keys_of(what: str) -> tuple[str, str]:
    return f"group.share.min.{what}", f"group.share.max.{what}"
