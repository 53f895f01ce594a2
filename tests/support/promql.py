"""Evaluates the part of Prometheus's query language that deploy/prometheus/rules.yaml uses, over scrapes.

A series is looked up at most five minutes back. ``increase`` and ``deriv`` count what the samples in the window say,
without Prometheus's extrapolation to the window's ends; a counter that starts again counts from 0.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
LOOKBACK_S = 300
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[a-zA-Z_:][\w:]*)|(?P<number>\d+(?:\.\d+)?)|(?P<text>\"[^\"]*\")|(?P<range>\[\d+[smh]\])"
    r"|(?P<mark>==|!=|=~|<=|>=|[-+*/(){},=<>]))"
)
_UNITS_S = {"s": 1, "m": 60, "h": 3600}
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_LEVELS = (("or",), ("and", "unless"), tuple(_COMPARISONS), ("+", "-"), ("*", "/"))


class Series:
    """The samples of all scrapes so far, by metric and labels."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[Labels, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))

    def add(self, at_s: float, samples: Iterable[tuple[str, Mapping[str, str], float]]) -> None:
        """Add one scrape: the name, labels and value of each sample."""
        for name, labels, value in samples:
            self._samples[name][frozenset(labels.items())].append((at_s, value))

    def ask(self, query: str, at_s: float) -> Vector | float:
        """The value of the query at this time."""
        tokens, at = [], 0
        while at < len(query.rstrip()):
            match = _TOKEN.match(query, at)
            assert match is not None, query[at:]
            tokens.append((str(match.lastgroup), match.group(match.lastgroup or 0)))
            at = match.end()
        parser = _Parser(self, tokens, at_s)
        value = parser.binary(0)
        assert not parser.tokens, parser.tokens
        return value

    def selected(self, name: str, wanted: Callable[[Mapping[str, str]], bool]) -> dict[Labels, list[Any]]:
        return {labels: found for labels, found in self._samples.get(name, {}).items() if wanted(dict(labels))}


class _Parser:
    def __init__(self, series: Series, tokens: list[tuple[str, str]], at_s: float) -> None:
        self.series, self.tokens, self.at_s = series, tokens, at_s

    def _next_is(self, *texts: str) -> bool:
        return bool(self.tokens) and self.tokens[0][1] in texts

    def _take(self, *texts: str) -> str:
        _, text = self.tokens.pop(0)
        assert not texts or text in texts, (text, texts)
        return text

    def binary(self, level: int) -> Vector | float:
        if level == len(_LEVELS):
            return self._unary()
        left = self.binary(level + 1)
        while self._next_is(*_LEVELS[level]):
            how, on = self._take(), None
            if self._next_is("on"):
                self._take()
                on = self._names()
            left = _combined(how, left, self.binary(level + 1), on)
        return left

    def _unary(self) -> Vector | float:
        kind, text = self.tokens.pop(0)
        if text == "(":
            value = self.binary(0)
            self._take(")")
            return value
        if kind == "number":
            return float(text)
        if text == "sum":
            self._take("by")
            names = self._names()
            self._take("(")
            value = self.binary(0)
            self._take(")")
            return _summed(value, names)
        if text in ("increase", "deriv", "max_over_time", "ceil"):
            self._take("(")
            value = self._window(text) if text != "ceil" else _each(self.binary(0), math.ceil)
            self._take(")")
            return value
        return {
            labels: samples[-1][1]
            for labels, samples in self._selector(text, LOOKBACK_S).items()
            if samples and self.at_s - samples[-1][0] <= LOOKBACK_S
        }

    def _names(self) -> list[str]:
        self._take("(")
        names = [self._take()]
        while self._next_is(","):
            self._take(",")
            names.append(self._take())
        self._take(")")
        return names

    def _window(self, function: str) -> Vector:
        name = self._take()
        found = self._selector(name, None)
        return {
            labels: _WINDOWS[function](samples)
            for labels, samples in found.items()
            if len(samples) > (function != "max_over_time")
        }

    def _selector(self, name: str, within_s: float | None) -> dict[Labels, list[tuple[float, float]]]:
        conditions = []
        if self._next_is("{"):
            self._take("{")
            while not self._next_is("}"):
                label, how, value = self._take(), self._take("=", "!=", "=~"), self._take().strip('"')
                conditions.append((label, how, value))
                if self._next_is(","):
                    self._take(",")
            self._take("}")
        if within_s is None:
            text = self._take().strip("[]")
            within_s = int(text[:-1]) * _UNITS_S[text[-1]]
        found = self.series.selected(name, lambda labels: all(_holds(labels, *each) for each in conditions))
        return {
            labels: [sample for sample in samples if self.at_s - within_s <= sample[0] <= self.at_s]
            for labels, samples in found.items()
        }


def _holds(labels: Mapping[str, str], label: str, how: str, value: str) -> bool:
    found = labels.get(label, "")
    return (re.fullmatch(value, found) is not None) if how == "=~" else (found == value) == (how == "=")


def _increase(samples: list[tuple[float, float]]) -> float:
    values = [value for _, value in samples]
    return sum(now - before if now >= before else now for before, now in itertools.pairwise(values))


def _slope(samples: list[tuple[float, float]]) -> float:
    """The slope per second of the line of least squares."""
    times, values = [at for at, _ in samples], [value for _, value in samples]
    time, value = sum(times) / len(times), sum(values) / len(values)
    return sum((t - time) * (v - value) for t, v in samples) / sum((t - time) ** 2 for t in times)


_WINDOWS: Mapping[str, Callable[[list[tuple[float, float]]], float]] = {
    "increase": _increase,
    "deriv": _slope,
    "max_over_time": lambda samples: max(value for _, value in samples),
}


def _each(value: Vector | float, function: Callable[[float], float]) -> Vector | float:
    return {labels: function(each) for labels, each in value.items()} if isinstance(value, dict) else function(value)


def _summed(value: Vector | float, names: list[str]) -> Vector:
    assert isinstance(value, dict)
    sums: Vector = defaultdict(float)
    for labels, each in value.items():
        sums[frozenset((name, text) for name, text in labels if name in names)] += each
    return dict(sums)


def _combined(how: str, left: Vector | float, right: Vector | float, on: list[str] | None = None) -> Vector | float:
    if how in ("or", "and", "unless"):
        assert isinstance(left, dict) and isinstance(right, dict)
        if on is not None:
            assert how == "unless"
            those = {frozenset(each for each in labels if each[0] in on) for labels in right}
            return {k: each for k, each in left.items() if frozenset(each for each in k if each[0] in on) not in those}
        if how == "or":
            return {**right, **left}
        return {labels: each for labels, each in left.items() if (labels in right) == (how == "and")}
    if not isinstance(left, dict) and not isinstance(right, dict):
        return _ARITHMETIC[how](left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = {labels: (left[labels], right[labels]) for labels in left if labels in right}
    elif isinstance(left, dict):
        pairs = {labels: (each, right) for labels, each in left.items()}  # type: ignore[misc]
    else:
        pairs = {labels: (left, each) for labels, each in right.items()}  # type: ignore[misc,union-attr]
    if how in _COMPARISONS:
        return {labels: a for labels, (a, b) in pairs.items() if _COMPARISONS[how](a, b)}
    return {labels: _ARITHMETIC[how](a, b) for labels, (a, b) in pairs.items()}
