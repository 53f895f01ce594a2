"""How the page draws: strips of a partition's window to scale and coloured by state, and lines of the last hour."""

from __future__ import annotations

import re

import pytest

from coordinator.protocol.admin_messages import RunInFlight
from sharegroup.web import history, site, strip


def run(first, last, state="ACQUIRED", **fields):
    where = {"topic": "orders", "topic_id": "T", "partition": 0}
    return RunInFlight(**where, first=first, last=last, state=state, **fields)


def test_a_strip_is_to_scale_and_shows_each_state():
    looked = strip.Looked(
        runs=(run(10, 19, member_id="m"), run(30, 39, "AVAILABLE", stage="trial"), run(50, 50, "ARCHIVING")),
        parts=((0, 99),),
    )
    drawn = strip.draw(looked, 0, 99)
    assert [(p.first, p.last, p.x, p.width) for p in drawn.pieces[:2]] == [(0, 9, 0, 100), (10, 19, 100, 100)]
    assert {k: n for k, n in drawn.counts.items() if n} == {"done": 79, "acquired": 10, "isolated": 10, "archiving": 1}
    assert "10 held by a member" in drawn.label


def test_a_holder_has_one_colour_that_few_other_holders_share():
    members = [f"member-{n}" for n in range(strip.HOLDERS)]
    runs = tuple(run(n, n, member_id=members[n % len(members)]) for n in range(40))
    drawn = strip.draw(strip.Looked(runs=runs, parts=((0, 39),)), 0, 39)
    colours = {(piece.colour, members[piece.first % len(members)]) for piece in drawn.pieces}
    assert len(colours) == len({colour for colour, _ in colours}) == strip.HOLDERS


def test_states_differ_in_more_than_their_hue():
    text = (site.HERE / "static" / "page.css").read_text(encoding="utf-8")
    for look in text.split("prefers-color-scheme")[:2]:
        found = dict(re.findall(r"--(\w+): #(\w{6});", look))
        lights = {name: luminance(found[name]) for name in ("done", "waiting", "available")}
        assert contrast(lights["waiting"], lights["done"]) >= 3
        assert contrast(lights["waiting"], lights["available"]) >= 2


def luminance(digits):
    """The relative luminance of a colour (WCAG 2.2)."""
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_a_strip_counts_offsets_that_were_not_read():
    drawn = strip.draw(strip.Looked(runs=(run(0, 4),), parts=((0, 9), (50, 59))), 0, 99)
    assert drawn.is_sampled
    assert drawn.counts["unseen"] == 80
    assert sum(drawn.counts.values()) == 100


def test_a_strip_of_many_runs_shows_shares():
    looked = strip.Looked(runs=tuple(run(n, n, "AVAILABLE") for n in range(0, 12_000, 4)), parts=((0, 11_999),))
    drawn = strip.draw(looked, 0, 11_999)
    assert len(drawn.pieces) == 2 * strip.PIECES
    shares = {p.colour: p.height / strip.HEIGHT for p in drawn.pieces}
    assert shares == pytest.approx({"done": 0.75, "available": 0.25})


@pytest.mark.parametrize("at", [0, 500_000, 999_999])
def test_one_held_record_of_a_million_is_visible(at):
    looked = strip.Looked(runs=(run(at, at, member_id="m"),), parts=((0, 999_999),))
    drawn = strip.draw(looked, 0, 999_999)
    *_, (colour, path) = drawn.paths.items()
    assert colour.startswith("acquired"), "the last path lies on top"
    (x, width) = (float(number) for number in re.match(r"M([\d.]+) 0h([\d.]+)v", path).groups())
    assert width >= strip.LEAST_WIDTH and 0 <= x <= strip.WIDTH - width
    assert x == pytest.approx(at / 1_000, abs=strip.LEAST_WIDTH)


def test_an_hour_of_history_has_a_fixed_size():
    kept = history.History()
    for second in range(0, 3 * 3_600, 5):
        kept.add(float(second), (second, 1, None, 2.0, 0))
    assert len(kept) <= history.POINTS
    series = kept.series("lag")
    assert series[-1] == (10_795.0, 10_795.0)
    assert series[-1][0] - series[0][0] <= history.LONGEST_S
    assert kept.series("acquired_rate") == []
    drawn = history.sparkline("Lag", series, 10_795.0)
    assert drawn.label == "Lag over 60 min: 7,210 at first, 10,795 at most, 10,795 now"
