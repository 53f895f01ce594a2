"""The facts for the doctor's rules, and the findings that they return."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from coordinator.config.resolved import GroupConfig
from coordinator.protocol.admin_messages import PlanInFlight, RunInFlight
from coordinator.protocol.messages import GroupDescription
from sharegroup.doctor.limits import HELD_LONG_MS

About: TypeAlias = dict[str, str | int]


class Severity(Enum):
    """How severe a finding is. The value is the word that people read."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One problem: ``what`` is the cause and ``do`` the way out, both in sentences; ``command`` does it, or shows more.
    ``rule``: the rule's name; ``about``: what the command is about, for the page's button."""

    rule: str
    severity: Severity
    what: str
    do: str
    command: str = ""
    about: About = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """A group as the doctor sees it. ``runs``: the first runs in flight, usually all; ``given_up``: the archived runs
    between start and end offsets, if records were given up without a dead letter. ``log_starts``: the first offsets of
    the logs, by topic and partition, if known; ``ahead``: the first record that is ahead of the clock, its offset and
    timestamp, asked for if a config goes by timestamps. ``topics``: the cluster's; None: unknown. ``bootstrap_server``,
    ``connect_options``: for the commands; the second has the words of --command-config and --command-property.
    ``dead_letters_stand_still``: dead letters wait, and none was written while the doctor watched."""

    description: GroupDescription
    runs: tuple[RunInFlight, ...] = ()
    plans: tuple[PlanInFlight, ...] = ()
    given_up: tuple[RunInFlight, ...] = ()
    now_ms: int = 0
    log_starts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    ahead: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    topics: frozenset[str] | None = None
    held_long_ms: int = HELD_LONG_MS
    bootstrap_server: str = "localhost:9092"
    connect_options: tuple[str, ...] = ()
    dead_letters_stand_still: bool = False

    @property
    def dead_letter_topic_is_missing(self) -> bool:
        """Whether the group's config names a dead letter topic that the cluster lacks, as far as is known."""
        name = self.config.errors_deadletterqueue_topic_name
        return bool(name) and self.topics is not None and name not in self.topics

    @property
    def group_id(self) -> str:
        return self.description.group_id

    @property
    def config(self) -> GroupConfig:
        """The group's configuration, with the defaults."""
        return GroupConfig.parse(self.description.all_configs)

    def command(self, command: str, *arguments: str) -> str:
        """Returns a command of ours on this group, quoted for a shell."""
        words = ("sharegroup", *command.split(), "--bootstrap-server", self.bootstrap_server, *self.connect_options)
        return shlex.join((*words, "--group", self.group_id, *arguments))


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """The facts that hold for all groups. ``stores``: the ids of the groups in each readable state store. ``in_sync``:
    how many replicas of each partition of the state topic are in sync. ``open_keys``: see
    :class:`~coordinator.protocol.wire.TokenHolder`."""

    stores: Mapping[str, frozenset[str]] = field(default_factory=dict)
    state_topic: str = ""
    min_in_sync: int = 1
    in_sync: Mapping[int, int] = field(default_factory=dict)
    open_keys: tuple[str, ...] = ()
    bootstrap_server: str = "localhost:9092"
