"""Lines about the configs that a share group keeps: their values and where these come from, what one query changed for
all queries, and what another query overrides.

Rule: one line for each key, at the join, and again only when the value changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from coordinator.config.group_keys import GROUP_KEYS
from coordinator.protocol.messages import Joined

LONGEST_LINE = 200
"""A line of configs has up to this many characters; a longer value has a line of its own."""

TOLD = ("share.session.timeout.ms", "share.delivery.count.limit", "share.release.backoff.ms")
"""A query that starts logs these keys even if they have defaults: they decide when its records come again."""

_log = logging.getLogger(__name__)


def effective_configs(configs: Mapping[str, str], own: Mapping[str, str], in_force: Mapping[str, str]) -> list[str]:
    """Lines with the group's configs that are set, and with where each value comes from: this query, the group or the
    coordinator. The last line has the keys of TOLD that have their defaults. ``configs``: the group's, ``own``: this
    query's, ``in_force``: the coordinator's, which hold instead."""
    held = {**configs, **in_force}
    set_keys = [key for key in GROUP_KEYS if key in held]
    whose = {key: "this query" if own.get(key, "").strip() else "group" for key in configs}
    named = [f"{key}={held[key]} ({'coordinator' if key in in_force else whose[key]})" for key in set_keys]
    defaults = [f"{key}={_default(key)}" for key in TOLD if key not in held]
    more = len(GROUP_KEYS) - len(set_keys) - len(defaults)
    return [
        *(f"configs: {line}" for line in _lines(named)),
        f"configs that have their default: {''.join(f'{each}, ' for each in defaults)}and {more} more (sharegroup "
        "configs list --all)",
    ]


def _lines(configs: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for config in configs:
        if lines and len(lines[-1]) + len(config) <= LONGEST_LINE:
            lines[-1] += f", {config}"
        else:
            lines.append(config)
    return lines


def log_joined(joined: Joined, own: Mapping[str, str]) -> None:
    """Log the configs that this join changed for the whole group, and those that the group keeps from others."""
    for key, before in joined.replaced.items():
        log_replaced(key, before, own.get(key, ""))
    for key, text in joined.configs.items():
        if not own.get(key, "").strip():
            _log.info(
                "%s=%s is not set by this query: the group has this value from another query, a sink or an earlier "
                'start, and uses it. To unset it: .option("%s", "")',
                key,
                text,
                key,
            )


def log_replaced(key: str, before: str, text: str) -> None:
    """Log that this query or its sink changed a config of its group. ``before`` and ``text``: empty for the default."""
    now, was = _shown(key, text), _shown(key, before)
    _log.info("%s is %s from now on for all queries of the group, as this one sets it; it was %s", key, now, was)


def log_changes(before: Joined, after: Joined, own: Mapping[str, str]) -> None:
    """Log the group's configs that changed between two answers of the coordinator: another query or sink set them."""
    for key in {**before.configs, **after.configs}:
        was, now = before.configs.get(key, ""), after.configs.get(key, "")
        if was == now:
            continue
        mine = own.get(key, "").strip()
        if mine and mine != now.strip():
            _log.warning(
                "%s=%s of this query has no effect any more: another query or sink of the group set %s, and the one "
                "that starts last wins for all of them",
                key,
                mine,
                _shown(key, now),
            )
        else:
            _log.info("%s is %s from now on: another query or sink of the group set it", key, _shown(key, now))


def _shown(key: str, text: str) -> str:
    return text or f"its default, {_default(key)}"


def _default(key: str) -> str:
    return GROUP_KEYS[key].shown_default or '""'
