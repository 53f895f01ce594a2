"""The rights of tokens: which token may send what to a coordinator.

If a token file has a single word, that is one token with all rights. Otherwise each line is ``RIGHTS:TOKEN`` or
``RIGHTS NAME:TOKEN``, for example ``admin alice:...``; lines that begin with ``#`` are comments. RIGHTS are read,
member and admin, separated by commas. NAME is for the audit log. After the token a line may have allow lists, which are
patterns for whole names: ``groups=``, and together with that ``topics=`` and ``dlq=``. An example is ``member
billing:... groups=billing-.* topics=orders-.*``.

Rule: a token is compared in constant time, and is in no error or ``repr``."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import get_args

from coordinator.protocol.admin_messages import Action, AnyAdminRequest
from coordinator.protocol.allowed_topics import ALL_TOPICS, DEAD_LETTER_KEY, SOURCE_KEY, AllowedTopics
from coordinator.protocol.errors import GroupNotAllowed, InvalidToken, InvalidTopicPattern, NotAllowed
from coordinator.protocol.messages import AnyRequest, DescribeGroup
from coordinator.protocol.topic_names import EVERYTHING, check_pattern, is_allowed, is_list
from coordinator.protocol.wire import StepDown

SHORTEST_TOKEN = 16


class Right(Enum):
    """The rights of a token. ADMIN includes READ."""

    READ = "read"
    MEMBER = "member"
    ADMIN = "admin"


ALL = frozenset(Right)
TOKEN_NAME = re.compile(r"[\w.@-]{1,80}")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_LINE = re.compile(
    rf"((?:read|member|admin)(?:,(?:read|member|admin))*)(?: ({TOKEN_NAME.pattern}))?:(\S+)"
    r"((?:[ \t]+(?:groups|topics|dlq)=\S+)*)"
)

RIGHT_OF: dict[str, Right] = {
    **{request.__name__: Right.MEMBER for request in get_args(AnyRequest)},
    **{
        request.__name__: Right.ADMIN if issubclass(request, Action) else Right.READ
        for request in get_args(AnyAdminRequest)
    },
    DescribeGroup.__name__: Right.READ,
    StepDown.__name__: Right.ADMIN,
}
"""The right that a request needs, by the request's name. Health and WhoAmI need only a token."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a token: its rights, its name (empty if the token has none), a pattern for the groups that it may
    use, and the topics that it may give to these groups."""

    rights: frozenset[Right] = ALL
    name: str = ""
    groups: str = EVERYTHING
    topics: AllowedTopics = ALL_TOPICS

    @property
    def is_bound(self) -> bool:
        """Whether the token's line has allow lists."""
        return (self.groups, self.topics.source, self.topics.dead_letters) != (EVERYTHING,) * 3

    def may_use(self, group_id: str) -> bool:
        return is_allowed(self.groups, group_id)

    def check_group(self, group_id: str) -> None:
        """Check that the caller may use the group. Raises GroupNotAllowed if the token's groups= does not allow it."""
        if not self.may_use(group_id):
            raise GroupNotAllowed(group_id=group_id, token=str(self), pattern=self.groups)

    def __str__(self) -> str:
        rights = "all rights" if self.rights == ALL else ",".join(sorted(right.value for right in self.rights))
        return f"{rights} {self.name}".rstrip()

    def check(self, request: str) -> None:
        """Check that the caller may send the request of this name. Raises NotAllowed if the caller lacks the right."""
        needed = RIGHT_OF.get(request)
        includes_read = Right.ADMIN in self.rights and needed is Right.READ
        if needed is not None and needed not in self.rights and not includes_read:
            raise NotAllowed(request=request, needed=needed.value, given=str(self))


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a file, with their holders."""

    holders: tuple[tuple[str, Caller], ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str, source: str) -> Tokens:
        """The tokens in the text; ``source`` names it in errors. Raises InvalidToken if a line is no token, or a token
        is too short or given twice."""
        lines = [line.strip() for line in text.splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        if len(lines) == 1 and len(lines[0].split()) == 1 and ":" not in lines[0]:
            return cls(((_checked(lines[0], source), Caller()),))
        holders = tuple(_holders(lines, source))
        if len({token for token, _ in holders}) < len(holders):
            raise InvalidToken(source=source, reason="a token is given twice; name several rights in one line.")
        if not holders:
            raise InvalidToken(source=source, reason="it must be one word of visible ASCII characters.")
        return cls(holders)

    def caller(self, authorization: bytes) -> Caller | None:
        """Returns the holder of the token in an authorization header; None if no holder has that token."""
        found = None
        for token, caller in self.holders:  # all are compared, so that the time tells nothing
            if hmac.compare_digest(authorization, f"Bearer {token}".encode()):
                found = caller
        return found

    def open_keys(self, allowed: AllowedTopics) -> tuple[str, ...]:
        """The coordinator's keys of allowed topics by which a member can use every topic: the key allows all, and the
        token of some member has no limit of its own. ``allowed``: the coordinator's lists. Empty if there is only one
        token: there is nobody then to keep topics from."""
        if len(self.holders) < 2:
            return ()
        members = [caller.topics for _, caller in self.holders if Right.MEMBER in caller.rights]
        is_open = {
            SOURCE_KEY: any(EVERYTHING == allowed.source == topics.source for topics in members),
            DEAD_LETTER_KEY: any(EVERYTHING == allowed.dead_letters == topics.dead_letters for topics in members),
        }
        return tuple(key for key, yes in is_open.items() if yes)


def _holders(lines: list[str], source: str) -> Iterator[tuple[str, Caller]]:
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line)
        if found is None:
            reason = (
                f"line {number} of its tokens is not RIGHTS:TOKEN, with rights of read, member and admin, and after it "
                "groups=, topics= and dlq= at most; a token alone is one word of visible ASCII characters, without a "
                "colon."
            )
            raise InvalidToken(source=source, reason=reason)
        rights, name, token, fields = found.groups()
        caller = Caller(frozenset(map(Right, rights.split(","))), name or "")
        yield _checked(token, source), _bound(caller, fields.split(), f"line {number} of its tokens", source)


def _bound(caller: Caller, fields: list[str], line: str, source: str) -> Caller:
    """The caller with the allow lists of its line. Raises InvalidToken if a list is given twice, or is no pattern; or
    topics are limited, and groups are not."""
    if not fields:
        return caller
    lists = dict(each.split("=", 1) for each in fields)
    if len(lists) < len(fields):
        raise InvalidToken(source=source, reason=f"{line} has an allow list twice.")
    if "groups" not in lists:
        reason = (
            f"{line} limits topics, and has no groups=: whoever may use a group gets what its other members read, "
            "and names its dead letter topic."
        )
        raise InvalidToken(source=source, reason=reason)
    for name, pattern in lists.items():
        try:
            check_pattern(pattern)
        except InvalidTopicPattern as error:
            reason = f"{line} has no valid pattern in {name}= ({error.fields['problem']})."
            raise InvalidToken(source=source, reason=reason) from None
        if name != "groups" and is_list(pattern):
            reason = f"{line} has a comma in {name}=, which no name has: write a pattern, as orders|payments."
            raise InvalidToken(source=source, reason=reason)
    topics = AllowedTopics(
        source=lists.get("topics", EVERYTHING), dead_letters=lists.get("dlq", EVERYTHING), token=str(caller)
    )
    return replace(caller, groups=lists["groups"], topics=topics)


def _checked(token: str, source: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise InvalidToken(source=source, reason="it must be one word of visible ASCII characters.")
    if len(token) < SHORTEST_TOKEN:
        raise InvalidToken(source=source, reason=f"it has less than {SHORTEST_TOKEN} characters, and can be guessed.")
    return token
