"""The metrics of a ShareConsumer, under the names that Kafka's Java client has for them (KIP-932).

Rule: a number is recorded once for a poll, a request or a reply, never for a record. As in Java, rates, means and
maxima are of the last 30 to 60 seconds, and a mean or a maximum without a value is NaN."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import nan
from typing import NamedTuple

WINDOW_S, WINDOWS = 30.0, 2
"""Java's metrics.sample.window.ms and metrics.num.samples."""


class _Window(NamedTuple):
    """The values of WINDOW_S seconds from ``began_s``."""

    began_s: float
    values: int
    sum: float
    most: float


class _Sensor:
    """Values, and what they come to. Each call tells the time: monotonic seconds that never fall."""

    def __init__(self) -> None:
        self.count, self.total, self.last_s = 0, 0.0, nan
        self._windows: deque[_Window] = deque(maxlen=WINDOWS)

    def record(self, value: float, now_s: float) -> None:
        last = self._windows[-1] if self._windows else None
        if last is None or now_s - last.began_s >= WINDOW_S:
            self._windows.append(_Window(now_s, 1, value, value))
        else:
            self._windows[-1] = _Window(last.began_s, last.values + 1, last.sum + value, max(last.most, value))
        self.count, self.total, self.last_s = self.count + 1, self.total + value, now_s

    def mean(self, now_s: float) -> float:
        recent = self._recent(now_s)
        return sum(each.sum for each in recent) / sum(each.values for each in recent) if recent else nan

    def most(self, now_s: float) -> float:
        return max((each.most for each in self._recent(now_s)), default=nan)

    def rate(self, now_s: float) -> float:
        """The values' sum per second. As in Java, less than a whole window before the current one counts as one."""
        return sum(each.sum for each in self._recent(now_s)) / self._seconds(now_s)

    def rate_of_count(self, now_s: float) -> float:
        return sum(each.values for each in self._recent(now_s)) / self._seconds(now_s)

    def _recent(self, now_s: float) -> list[_Window]:
        return [each for each in self._windows if now_s - each.began_s < WINDOWS * WINDOW_S]

    def _seconds(self, now_s: float) -> float:
        elapsed_s = now_s - min((each.began_s for each in self._recent(now_s)), default=now_s)
        return elapsed_s + max(WINDOWS - 1 - elapsed_s // WINDOW_S, 0) * WINDOW_S


class Metrics:
    """The sensors of one consumer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may ask while the program is in a method
        self._between_polls_ms, self._idle, self._heartbeat_ms = _Sensor(), _Sensor(), _Sensor()
        self._fetch_ms, self._fetch_records, self._fetch_bytes = _Sensor(), _Sensor(), _Sensor()
        self._consumed, self._acknowledged, self._refused = _Sensor(), _Sensor(), _Sensor()
        self._polled_s: float | None = None

    @contextmanager
    def polling(self) -> Iterator[None]:
        """A context manager around a poll."""
        began_s = time.monotonic()
        between_s = 0.0 if self._polled_s is None else began_s - self._polled_s
        self._polled_s = began_s
        self._record(self._between_polls_ms, between_s * 1000)
        try:
            yield
        finally:
            took_s = time.monotonic() - began_s
            self._record(self._idle, took_s / ((took_s + between_s) or 1))

    def consumed(self, records: int) -> None:
        """A poll returns records."""
        self._record(self._consumed, records)

    def fetched(self, seconds: float, records: int, nbytes: int) -> None:
        """A request was answered, and its records of ``nbytes`` were read, within ``seconds``."""
        self._record(self._fetch_ms, seconds * 1000)
        if records:
            self._record(self._fetch_records, records)
            self._record(self._fetch_bytes, nbytes)

    def acknowledged(self, records: int) -> None:
        self._record(self._acknowledged, records)

    def refused(self, records: int) -> None:
        """So many of the acknowledgements were refused, or had no reply."""
        self._record(self._refused, records)

    def heartbeat(self, seconds: float) -> None:
        """A heartbeat was answered after ``seconds``."""
        self._record(self._heartbeat_ms, seconds * 1000)

    def _record(self, sensor: _Sensor, value: float) -> None:
        with self._lock:
            sensor.record(value, time.monotonic())

    def values(self) -> dict[str, float]:
        """Returns the metrics by Java's names: totals since the consumer was made, rates per second, times in ms
        (but for ``last-…-seconds-ago``), sizes in bytes."""
        with self._lock:
            now_s = time.monotonic()
            polls, beats, fetches = self._between_polls_ms, self._heartbeat_ms, self._fetch_ms
            records, sizes = self._fetch_records, self._fetch_bytes
            return {
                "last-poll-seconds-ago": nan if self._polled_s is None else now_s - self._polled_s,
                "time-between-poll-avg": polls.mean(now_s),
                "time-between-poll-max": polls.most(now_s),
                "poll-idle-ratio-avg": self._idle.mean(now_s),
                "heartbeat-rate": beats.rate_of_count(now_s),
                "heartbeat-total": beats.count,
                "heartbeat-response-time-max": beats.most(now_s),
                "last-heartbeat-seconds-ago": now_s - beats.last_s,
                "fetch-rate": fetches.rate_of_count(now_s),
                "fetch-total": fetches.count,
                "fetch-latency-avg": fetches.mean(now_s),
                "fetch-latency-max": fetches.most(now_s),
                "fetch-size-avg": sizes.mean(now_s),
                "fetch-size-max": sizes.most(now_s),
                "records-per-request-avg": records.mean(now_s),
                "records-per-request-max": records.most(now_s),
                "records-consumed-rate": self._consumed.rate(now_s),
                "records-consumed-total": self._consumed.total,
                "bytes-consumed-rate": sizes.rate(now_s),
                "bytes-consumed-total": sizes.total,
                "acknowledgements-send-rate": self._acknowledged.rate(now_s),
                "acknowledgements-send-total": self._acknowledged.total,
                "acknowledgements-error-rate": self._refused.rate(now_s),
                "acknowledgements-error-total": self._refused.total,
            }
