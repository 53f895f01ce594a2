"""The page of all groups: first those that need a person; a search; a bounded number of groups on a page."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.responses import Response

from sharegroup.web.history import NAMES, Sparkline, sparkline
from sharegroup.web.site import Visit
from sharegroup.web.watch import WatchedGroup

ON_A_PAGE = 25
"""A page has up to this many groups: with their sparklines, less than 100 kB."""
WORDS = {"lag": "Lag", "in_flight": "In flight", "acquired_rate": "Acquired/s", "done_rate": "Done/s"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A group with its sparklines by the names of the numbers."""

    seen: WatchedGroup
    sparklines: dict[str, Sparkline]


def show(visit: Visit) -> Response:
    """All groups, or those whose ids hold the words of the search."""
    snapshot = visit.site.watch.snapshot
    search = visit.text("search").strip()
    found = [
        each
        for group_id, each in snapshot.groups.items()
        if all(word in group_id.casefold() for word in search.casefold().split())
    ]
    found.sort(key=lambda each: (-each.weight, -(each.line.lag or 0), each.line.group_id))
    pages = max(1, -(-len(found) // ON_A_PAGE))
    number = min(visit.number("page", 1, least=1), pages)
    on_page = found[(number - 1) * ON_A_PAGE : number * ON_A_PAGE]
    visit.site.watch.opened(each.line.group_id for each in on_page)
    return visit.page(
        "groups.html",
        as_of_s=min((each.at_s for each in on_page), default=0.0),
        snapshot=snapshot,
        rows=[Row(seen=each, sparklines=sparklines(visit, each.line.group_id)) for each in on_page],
        found=len(found),
        total=len(snapshot.groups),
        troubled=sum(1 for each in found if each.weight),
        search=search,
        number=number,
        pages=pages,
    )


def sparklines(visit: Visit, group_id: str) -> dict[str, Sparkline]:
    """The sparklines of a group's last hour, by name."""
    history, now_s = visit.site.watch.history(group_id), time.time()
    return {name: sparkline(WORDS[name], history.series(name), now_s) for name in NAMES if name in WORDS}
