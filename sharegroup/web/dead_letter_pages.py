"""The pages of a group's dead letters: the newest with their reasons, single ones, and their redrive.

Rule: shown and redriven are only dead letters of the named group, from topics that the person's token may read. A
redrive is confirmed after its dry run."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.json import encode
from starlette.responses import Response

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.process.log_format import write_end
from share_sink.redrive.dlq_reader import DeadLetter
from share_sink.redrive.report import RedriveReport
from sharegroup.admin_access import described, origins_of
from sharegroup.web.errors import BadRequest
from sharegroup.web.jobs import Job
from sharegroup.web.records import LISTED, checked_form, content, preview
from sharegroup.web.site import Handler, Instead, Visit, status_of
from sharegroup.web.words import told

_audit = logging.getLogger("sharegroup.audit")
"""The coordinator's audit log if the page runs beside a standalone coordinator, else lines of the page's own log."""

ON_A_PAGE = 50
MOST_REASONS, MOST_FIRST = 20, 10
"""A page lists up to MOST_REASONS reasons. A dry run shows the content of the first MOST_FIRST chosen dead letters."""
DLQ_TOPIC = "errors.deadletterqueue.topic.name"
_SKIPPED = {
    "doubles": "are further dead letters of a record that is sent",
    "redriven_too_often": "were redriven three times already",
    "without_record": "have headers only, without a record",
    "other_topics": "name a topic that the group does not read: the group's producers did not write them",
    "not_delivered": "name a record that the group was never given: the group's producers did not write them",
    "came_after": "came after what was shown",
}
_ALL = "all"


def refused(visit: Visit, error: ShareGroupError) -> Response | None:
    """The list of dead letters with the choice that was made, and why their redrive was refused."""
    is_ours = visit.session is not None and visit.session.visitor.is_admin and isinstance(error, BadRequest)
    return show_list(visit, error) if is_ours and visit.request.method == "POST" else None


def show_list(visit: Visit, error: ShareGroupError | None = None) -> Response:
    """The group's dead letters among the newest of its topic: all, those with one reason, or those of one record.
    ``error``: why their redrive was refused."""
    group_id, reason = visit.text("group"), visit.text("reason")
    topic = _topic_of(visit, group_id)
    found = [each for each in visit.site.kafka.dead_letters(topic) if _is_of(visit, group_id, each)] if topic else []
    origin = (visit.text("topic"), visit.number("partition", 0), visit.number("offset", 0))
    if origin[0]:
        found = [each for each in found if (each.origin_topic, each.origin_partition, each.origin_offset) == origin]
    reasons = Counter((each.disposition, each.message) for each in found)
    chosen = [each for each in found if reason in ("", digest(each.message))]
    rows, paging = visit.paged(chosen, ON_A_PAGE)
    choice = {"reason": reason, "digest": digest, "origin": origin if origin[0] else None, "found": len(chosen)}
    listed = {"rows": rows, "most": LISTED, "preview": preview, **paging}
    values: dict[str, Any] = {"group_id": group_id, "topic": topic, **choice, **listed}
    return visit.page(
        "dead_letters.html",
        200 if error is None else status_of(error),
        **values,
        error="" if error is None else told(error),
        chosen=frozenset(visit.form.get("chosen", ())),
        reasons=reasons.most_common(MOST_REASONS),
        more_reasons=max(0, len(reasons) - MOST_REASONS),
    )


def show_one(visit: Visit) -> Response:
    """One dead letter: where it came from and why, and the record's key, value and headers."""
    group_id, (index, offset) = visit.text("group"), _place(visit.text("at"))
    form, topic = checked_form(visit.text("form")), _topic_of(visit, group_id)
    found = visit.site.kafka.dead_letter(topic, index, offset) if topic else None
    if found is None or not _is_of(visit, group_id, found):
        raise BadRequest(what=f"Group {group_id} has no dead letter at {topic or 'no topic'}-{index}@{offset}.")
    return visit.page("dead_letter.html", group_id=group_id, topic=topic, each=found, **content(found, form))


def ask_redrive(visit: Visit) -> Response:
    """Start the dry run of a redrive: of the chosen dead letters, or of all with one reason."""
    group_id = visit.text("group")
    topic = _topic_of(visit, group_id)
    if not topic:
        raise BadRequest(what=f"Group {group_id} has no dead letter topic.")
    chosen = tuple(visit.form.get("chosen", ()))
    if visit.text("scope") == _ALL:
        chosen = ()
    elif not chosen:
        raise BadRequest(what="Choose at least one dead letter.")
    reason = visit.text("reason") if visit.text("scope") == _ALL else ""
    places = frozenset(map(_place, chosen))
    values = {"group": group_id, "topic": topic, "places": places, "reason": reason}
    return _begun(visit, Job(owner=visit.signed_in, values=values, execute=False))


def confirm_redrive(visit: Visit) -> Response:
    """Start a redrive whose dry run was shown."""
    pending = visit.signed_in.confirmed(visit.text("pending"))
    if pending.kind != "redrive":
        raise BadRequest(what="This is no redrive.")
    return _begun(visit, Job(owner=visit.signed_in, values=pending.values, execute=True))


def show_job(visit: Visit) -> Response:
    """The progress of a redrive, and its result."""
    job = visit.site.jobs.find(visit.text("job"), visit.signed_in)
    if job is None:
        raise BadRequest(what="There is no such redrive.")
    end = job.end
    report = None if end is None else end.report
    may_send = end is not None and not end.error and report is not None and report.sent > 0 and not job.execute
    if report is not None and may_send and not job.pending:
        job.pending = visit.signed_in.ask_confirmation("redrive", {**job.values, "as_shown": report.shown})
    skipped = [] if report is None else [(getattr(report, each), says) for each, says in _SKIPPED.items()]
    return visit.page(
        "job.html",
        job=job,
        end=end,
        group_id=job.values["group"],
        may_send=may_send,
        skipped=[(count, says) for count, says in skipped if count],
        by_reason=[] if report is None else report.by_reason.most_common(MOST_REASONS),
    )


def _begun(visit: Visit, job: Job) -> Response:
    name = visit.site.jobs.begin(job, partial(_redriven, visit))
    return visit.redirect(f"/redrive?job={name}")


def _redriven(visit: Visit, job: Job) -> RedriveReport:
    values = job.values

    def chosen(dead_letter: DeadLetter) -> bool:
        if not _is_of(visit, values["group"], dead_letter):
            return False
        at = dead_letter.partition, dead_letter.offset
        is_chosen = (
            at in values["places"] if values["places"] else values["reason"] in ("", digest(dead_letter.message))
        )
        if is_chosen and len(job.first) < MOST_FIRST:
            job.first.append(("{}@{}".format(*at), preview(dead_letter.value)))
        return is_chosen

    def watch(read: int) -> None:
        job.read = read

    if job.execute:
        _audit.info("%s", _audited(visit, values, "begun"))
    try:
        report = visit.site.kafka.redrive(
            values["topic"],
            chosen,
            as_shown=values["as_shown"] if job.execute else "",
            origins=lambda group_id: origins_of(visit.admin, group_id, values["topic"]),
            watch=watch,
        )
    except Exception as error:
        if job.execute:
            more = f" {type(error).__name__}: {encode(str(error)).decode()}"
            write_end(_audit, logging.INFO, _audited(visit, values, "stopped", more))
        raise
    if job.execute:
        write_end(_audit, logging.INFO, _audited(visit, values, "done", f" sent={report.sent}"))
    return report


def _audited(visit: Visit, values: Mapping[str, Any], what: str, more: str = "") -> str:
    """Returns a line for the audit log like a coordinator's, since the page itself sends the redriven records."""
    visitor = visit.signed_in.visitor
    asked = {
        "type": "Redrive",
        "group_id": values["group"],
        "topic": values["topic"],
        "dead_letters": [f"{partition}@{offset}" for partition, offset in sorted(values["places"])],
        "reason_digest": values["reason"],
    }
    who = f"admin {visitor.name or 'somebody without a name'}"
    return f"{what}: who={who} from=the page request={encode(asked).decode()}{more}"


def digest(reason: str) -> str:
    """Returns the name of a reason in addresses and forms, since a reason may be long."""
    return hashlib.sha256(reason.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _is_of(visit: Visit, group_id: str, dead_letter: DeadLetter) -> bool:
    """Whether the dead letter is the group's, from a topic that the person's token may read."""
    return dead_letter.group_id == group_id and visit.caller.topics.allows_source(dead_letter.origin_topic)


def _place(text: str) -> tuple[int, int]:
    """Parse a text as 0@12. Raises BadRequest if it has another form."""
    partition, at, offset = text.partition("@")
    numbers = (partition, offset)
    if not at or not all(each.isascii() and each.isdecimal() and len(each) < 20 for each in numbers):
        raise BadRequest(what=f"{text!r} is no dead letter.")
    return int(partition), int(offset)


def _topic_of(visit: Visit, group_id: str) -> str:
    """Returns the group's dead letter topic; empty if it has none. Raises GroupIdNotFound if there is no such group."""
    return described(visit.admin, group_id).configs.get(DLQ_TOPIC, "")


LOOKS: dict[str, Handler] = {"/deadletters": show_list, "/deadletter": show_one, "/redrive": show_job}
ACTIONS: dict[str, Handler] = {"/redrive": ask_redrive, "/redrive/confirm": confirm_redrive}
"""The handlers by their addresses. Those in ACTIONS need the right admin."""
INSTEAD: dict[str, Instead] = {"/redrive": refused}
