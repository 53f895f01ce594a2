"""The page of all groups, with a search, a filter and an order: by default, the groups in the worst state come first. A
page has a limited number of groups."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from sharegroup.web.errors import BadRequest
from sharegroup.web.history import NAMES, Sparkline, sparkline
from sharegroup.web.needs import Need
from sharegroup.web.site import Visit
from sharegroup.web.watch import WatchedGroup

MANY = "Not all groups can be looked at now."
"""The page says this instead of the error, which may name groups that the person's token may not use."""
ON_A_PAGE = 25
"""A page has up to this many groups, which with their sparklines take less than 100 kB."""
WORDS = {"lag": "Lag", "in_flight": "Held", "acquired_rate": "Acquired/s", "done_rate": "Done/s"}
ALL, NONE = "all", "none"
SHOWS = (ALL, *(need.word for need in Need), NONE)
"""The filters: all groups, those with one need, and those without any."""
_NEED = "need"
ORDERS: Mapping[str, tuple[str, Callable[[WatchedGroup], Any]]] = {
    _NEED: ("what needs a person", lambda each: each.need or len(Need) + 1),
    "lag": ("lag", lambda each: -(each.line.lag or 0)),
    "oldest": ("oldest", lambda each: -(each.line.oldest_ms or 0)),
    "given-up": ("given up", lambda each: -each.given_up),
    "name": ("name", lambda each: each.line.group_id.casefold()),
}
"""Sort orders: the name in the address, the label on the page, the sort key. Ties are broken by need, lag and name."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A group with its sparklines, by the names of their numbers."""

    seen: WatchedGroup
    sparklines: dict[str, Sparkline]


def show(visit: Visit) -> Response:
    """Returns all groups, or those whose ids have the words of the search, with one need, in one order."""
    snapshot = visit.site.watch.snapshot
    search, show, order = visit.text("search").strip(), visit.text("show", ALL), visit.text("order", _NEED)
    if show not in SHOWS or order not in ORDERS:
        raise BadRequest(what=f"Groups are shown as {', '.join(SHOWS)}, in the order {', '.join(ORDERS)}.")
    groups = {group_id: each for group_id, each in snapshot.groups.items() if visit.caller.may_use(group_id)}
    matching = [
        each
        for group_id, each in groups.items()
        if all(word in group_id.casefold() for word in search.casefold().split())
    ]
    counts = Counter(_shown_as(each) for each in matching)
    counts[ALL] = len(matching)
    found = [each for each in matching if show in (ALL, _shown_as(each))]
    found.sort(key=lambda each: [key(each) for key in (ORDERS[order][1], ORDERS[_NEED][1], ORDERS["lag"][1])])
    on_page, paging = visit.paged(found, ON_A_PAGE)
    visit.site.watch.opened(each.line.group_id for each in on_page)
    return visit.page(
        "groups.html",
        as_of_s=min((each.at_s for each in on_page), default=0.0),
        snapshot=replace(snapshot, error=MANY) if snapshot.error and visit.caller.is_bound else snapshot,
        rows=[Row(seen=each, sparklines=sparklines(visit, each.line.group_id)) for each in on_page],
        found=len(matching),
        total=len(groups),
        troubled=len(matching) - counts[NONE],
        counts={word: counts[word] for word in SHOWS},
        orders={name: words for name, (words, _) in ORDERS.items()},
        kept={"search": search or None, "show": None if show == ALL else show},
        sorted_by=None if order == _NEED else order,
        search=search,
        shown=show,
        order=order,
        **paging,
    )


def _shown_as(group: WatchedGroup) -> str:
    return NONE if group.need is None else group.need.word


def sparklines(visit: Visit, group_id: str) -> dict[str, Sparkline]:
    """Returns the sparklines of a group's last hour, by name."""
    history, now_s = visit.site.watch.history(group_id), time.time()
    return {name: sparkline(WORDS[name], history.series(name), now_s) for name in NAMES if name in WORDS}
