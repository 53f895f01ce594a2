"""The rights of tokens: which token may ask what of a coordinator.

A token file of one word is one token with all rights. Else each line is ``RIGHTS:TOKEN`` or ``RIGHTS NAME:TOKEN``, as
``admin alice:...``; RIGHTS are read, member and admin, several separated by commas; a line that begins with ``#`` is a
comment. The name stands in the audit log. Rule: a token is compared in constant time, and is in no error or ``repr``.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import get_args

from coordinator.protocol.admin_messages import Action, AnyAdminRequest
from coordinator.protocol.errors import InvalidToken, NotAllowed
from coordinator.protocol.messages import AnyRequest, DescribeGroup
from coordinator.protocol.task_messages import ReportProgress
from coordinator.protocol.wire import StepDown

SHORTEST_TOKEN = 16


class Right(Enum):
    """The rights. ADMIN includes READ."""

    READ = "read"
    MEMBER = "member"
    ADMIN = "admin"


ALL = frozenset(Right)
_TOKEN = re.compile(r"[\x21-\x7e]+")
_LINE = re.compile(r"((?:read|member|admin)(?:,(?:read|member|admin))*)(?: ([\w.@-]{1,80}))?:(\S+)")

RIGHT_OF: dict[str, Right] = {
    **{request.__name__: Right.MEMBER for request in get_args(AnyRequest)},
    **{
        request.__name__: Right.ADMIN if issubclass(request, Action) else Right.READ
        for request in get_args(AnyAdminRequest)
    },
    ReportProgress.__name__: Right.MEMBER,
    DescribeGroup.__name__: Right.READ,
    StepDown.__name__: Right.ADMIN,
}
"""The right that a request needs, by its name. Health, FindCoordinator and WhoAmI need a token, and no right."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a token: its rights, and its name (empty: it has none)."""

    rights: frozenset[Right] = ALL
    name: str = ""

    def __str__(self) -> str:
        rights = "all rights" if self.rights == ALL else ",".join(sorted(right.value for right in self.rights))
        return f"{rights} {self.name}".rstrip()

    def check(self, request: str) -> None:
        """Check that the caller may send the request of this name.

        Raises:
            NotAllowed: it lacks the right.
        """
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
        """The tokens in the text; ``source`` names it in errors.

        Raises:
            InvalidToken: a line is no token, or a token is too short or given twice.
        """
        lines = [line.strip() for line in text.splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        if len(lines) == 1 and _LINE.fullmatch(lines[0]) is None:
            return cls(((_checked(lines[0], source), Caller()),))
        holders = tuple(_holders(lines, source))
        if len({token for token, _ in holders}) < len(holders):
            raise InvalidToken(source=source, reason="a token is given twice; name several rights in one line.")
        if not holders:
            raise InvalidToken(source=source, reason="it must be one word of visible ASCII characters.")
        return cls(holders)

    def caller(self, authorization: bytes) -> Caller | None:
        """The holder of the token in an authorization header; None: nobody has it."""
        found = None
        for token, caller in self.holders:  # all of them, so that the time says nothing
            if hmac.compare_digest(authorization, f"Bearer {token}".encode()):
                found = caller
        return found

    def token_with(self, right: Right) -> str | None:
        """The first token that has the right; None: no token has it."""
        return next((token for token, caller in self.holders if right in caller.rights), None)


def _holders(lines: list[str], source: str) -> Iterator[tuple[str, Caller]]:
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line)
        if found is None:
            reason = (
                f"line {number} of its tokens is not RIGHTS:TOKEN, with rights of read, member and admin; one token "
                "alone must be one word of visible ASCII characters."
            )
            raise InvalidToken(source=source, reason=reason)
        rights, name, token = found.groups()
        yield _checked(token, source), Caller(frozenset(map(Right, rights.split(","))), name or "")


def _checked(token: str, source: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise InvalidToken(source=source, reason="it must be one word of visible ASCII characters.")
    if len(token) < SHORTEST_TOKEN:
        raise InvalidToken(source=source, reason=f"it has less than {SHORTEST_TOKEN} characters, and can be guessed.")
    return token
