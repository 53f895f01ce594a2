"""Reads records and dead letters for the page, and shows bytes as text, JSON or hexadecimal digits.

Rule: only the groups' own topics are read: those that they subscribe to, and their dead letter topics. The page shows a
limited part of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

from coordinator.admin.admin import Admin
from coordinator.admin.waiting_records import Bounds
from coordinator.kafka.record_headers import headers_of
from share_sink.redrive.dlq_reader import REDRIVES, DeadLetter, dead_letter_at, dead_letters, record_at
from share_sink.redrive.redrive import Origins, redrive
from share_sink.redrive.report import RedriveReport
from share_source.views.record_rows import Browsed, browse
from sharegroup.web.errors import BadRequest
from sharegroup.web.texts import clean, json_lines, text_of

MOST_BYTES = 8_192
"""Up to this many bytes of a value are shown. A hexadecimal dump shows a quarter of them, since it prints four
characters for each byte: two digits, a blank, and the byte as text."""
MOST_KEY_BYTES, MOST_HEADER_BYTES = 1_024, 200
MOST_HEADERS = 30
PREVIEW_BYTES = 60
"""A list shows up to this many bytes of a value, or a third of them as hexadecimal digits."""
LISTED, MOST_LISTED_BYTES = 500, 16_000_000
"""A list has up to LISTED dead letters, the newest of the topic, with up to MOST_LISTED_BYTES of reasons and names."""
QUEUED_KB = 16_384
"""librdkafka prefetches up to this many kilobytes, since dead letters may be large."""
FORMS = ("text", "json", "hex")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Bytes as the page shows them. ``form``: one of FORMS, or null; ``size``: of all; ``is_cut``: not all is shown."""

    text: str
    form: str
    size: int
    is_cut: bool


@dataclass(frozen=True, kw_only=True)
class KafkaRecord:
    """A record of a log."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


class KafkaReads:
    """Reads with librdkafka, as ``sharegroup dlq`` does. ``config``: its properties, with bootstrap.servers."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def record(self, topic: str, partition: int, offset: int) -> KafkaRecord | None:
        """Returns the record at this offset; None if the log has none. Raises as record_at."""
        message: Any = record_at(topic, partition, offset, self._config)
        if message is None:
            return None
        kind, time_ms = message.timestamp()
        return KafkaRecord(
            key=message.key(),
            value=message.value(),
            headers=tuple(headers_of(message) or ()),
            timestamp_ms=time_ms if kind else None,
        )

    def waiting(self, admin: Admin, group_id: str, bounds: Bounds) -> Browsed[dict[str, Any]]:
        """Returns the group's first records within the bounds that are not done, with previews of their keys and
        values. Raises as browse."""
        config = {"queued.max.messages.kbytes": str(QUEUED_KB), **self._config}

        def previewed(row: dict[str, Any]) -> dict[str, Any]:
            return {**row, "headers": (), "key": preview(row["key"]), "value": preview(row["value"])}

        return browse(admin, config, group_id, bounds, previewed)

    def dead_letters(self, topic: str) -> list[DeadLetter]:
        """Returns the newest LISTED dead letters of all partitions, the newest first, without keys and record headers,
        and with the beginnings of their values. Raises as the reader's function of this name."""
        config = {"queued.max.messages.kbytes": str(QUEUED_KB), **self._config}
        kept: list[tuple[int, int, int, DeadLetter]] = []
        size = 0
        for each in dead_letters(topic, config, newest=LISTED):
            listed = _without_record(each)
            heappush(kept, (each.timestamp_ms or 0, -each.partition, each.offset, listed))
            size += _size(listed)
            while len(kept) > LISTED or size > MOST_LISTED_BYTES:
                size -= _size(heappop(kept)[-1])
        return [letter for *_, letter in sorted(kept, reverse=True)]

    def dead_letter(self, topic: str, partition: int, offset: int) -> DeadLetter | None:
        return dead_letter_at(topic, partition, offset, self._config)

    def redrive(
        self,
        topic: str,
        chosen: Callable[[DeadLetter], bool],
        *,
        as_shown: str,
        origins: Origins,
        watch: Callable[[int], None],
    ) -> RedriveReport:
        """Redrive the chosen dead letters if they are as ``as_shown`` says; if that is empty, only report what would be
        done. ``origins``: what groups were given; ``watch`` is called with the number read so far. Raises as
        :func:`share_sink.redrive.redrive.redrive`."""
        return redrive(
            topic,
            chosen,
            options={f"kafka.{key}": value for key, value in self._config.items()},
            dry_run=not as_shown,
            as_shown=as_shown,
            origins=origins,
            watch=lambda report: watch(report.read),
        )


def _without_record(letter: DeadLetter) -> DeadLetter:
    """Returns the part of the dead letter that a list shows, since a record may have megabytes."""
    ours = tuple(
        header for header in letter.headers if header[0] == REDRIVES and len(header[1] or b"") <= MOST_KEY_BYTES
    )
    beginning = None if letter.value is None else letter.value[: PREVIEW_BYTES + 1]
    return replace(letter, key=None, value=beginning, headers=ours[-1:])


def _size(letter: DeadLetter) -> int:
    """Returns the approximate size in bytes of a dead letter without its record."""
    return 4 * sum(map(len, (letter.message, letter.disposition, letter.origin_topic, letter.group_id))) + 1_000


def shown(data: bytes | None, form: str = "", most: int = MOST_BYTES) -> Shown:
    """Returns up to ``most`` bytes in this form. By default text is shown as text, JSON with line breaks, and
    everything else as hexadecimal digits."""
    if data is None:
        return Shown(text="null", form="null", size=0, is_cut=False)
    cut, is_cut = data[:most], len(data) > most
    text = text_of(cut, is_cut=is_cut)
    may_be_json = text is not None and not is_cut and (form == "json" or (not form and text[:1] in ("{", "[")))
    if may_be_json and (lines := json_lines(text or "", most)) is not None:
        return Shown(text=clean(lines[:most], "\n"), form="json", size=len(data), is_cut=len(lines) > most)
    if form == "text" or (text is not None and form != "hex"):
        said = cut.decode("utf-8", "ignore" if is_cut else "replace") if text is None else text
        return Shown(text=clean(said, "\t\r\n"), form="text", size=len(data), is_cut=is_cut)
    few = data[: most // 4]
    return Shown(text=_hex(few), form="hex", size=len(data), is_cut=len(data) > len(few))


def preview(data: bytes | None) -> str:
    """Returns the beginning of a value on one line, as text or as hexadecimal digits."""
    if data is None:
        return "null"
    cut, is_cut = data[:PREVIEW_BYTES], len(data) > PREVIEW_BYTES
    text = text_of(cut, is_cut=is_cut)
    if text is None:
        few = data[: PREVIEW_BYTES // 3]
        return f"0x{few.hex(' ')}{' …' if len(data) > len(few) else ''}"
    return clean(" ".join(text.split())) + (" …" if is_cut else "")


def _hex(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        readable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {readable}")
    return "\n".join(lines)


def checked_form(form: str) -> str:
    """Returns the form, which may be empty. Raises BadRequest if there is no such form."""
    if form not in ("", *FORMS):
        raise BadRequest(what=f"There is no form {form!r}: {', '.join(FORMS)}.")
    return form


def content(record: KafkaRecord | DeadLetter | None, form: str) -> dict[str, Any]:
    """Returns the values of a page with a record's key, value and headers in this form."""
    headers = () if record is None else record.headers
    return {
        "key": record and shown(record.key, form, MOST_KEY_BYTES),
        "value": record and shown(record.value, form),
        "headers": [(name[:200], shown(value, most=MOST_HEADER_BYTES)) for name, value in headers[:MOST_HEADERS]],
        "more_headers": max(0, len(headers) - MOST_HEADERS),
        "forms": FORMS,
    }
