"""Checks the token with which a person signs in.

Rule: standalone coordinators check tokens themselves, and every call of the session carries the token, so that their
audit log names the person. A coordinator on demand belongs to the user who runs the page, so the page checks tokens
against a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from coordinator.admin.admin import Admin
from coordinator.protocol.allowed_topics import AllowedTopics
from coordinator.protocol.errors import InvalidRequest, NotAllowed, NotAuthorized
from coordinator.protocol.rights import Caller, Right, Tokens
from sharegroup.web.sessions import Visitor


class OwnTokens:
    """The page's own tokens. ``admin`` makes the calls of all their holders."""

    def __init__(self, tokens: Tokens, admin: Admin) -> None:
        self._tokens, self._admin = tokens, admin

    def visitor(self, token: str) -> Visitor | None:
        """Returns the person with this token; None if nobody has it, or it has no right to read."""
        caller = self._tokens.caller(f"Bearer {token}".encode())
        return Visitor(caller=caller, admin=self._admin) if caller is not None and _may_look(caller) else None


class CoordinatorTokens:
    """Tokens of standalone coordinators, which ``config`` names in share.coordinator.endpoint."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def visitor(self, token: str) -> Visitor | None:
        """Returns the person with this token; None if nobody has it, or it has no right to read. Raises ShareGroupError
        if no coordinator can be asked."""
        admin = Admin(self._config, token=token)
        try:
            caller = _caller(admin)
        except BaseException:
            admin.close()
            raise
        if caller is None or not _may_look(caller):
            admin.close()
            return None
        return Visitor(caller=caller, admin=admin, owns_admin=True)


def _may_look(caller: Caller) -> bool:
    return bool(caller.rights & {Right.READ, Right.ADMIN})


def _caller(admin: Admin) -> Caller | None:
    """Returns the holder of the client's token; None if nobody has it. Coordinators of an earlier version do not tell.
    But they check rights first, so a token that may act gets the error of the missing group id."""
    try:
        holder = admin.who_am_i()
        found = Caller(frozenset(map(Right, holder.rights)), holder.name, holder.groups)
        topics = AllowedTopics(source=holder.topics, dead_letters=holder.dead_letters, token=str(found))
        return replace(found, topics=topics)
    except NotAuthorized:
        return None
    except InvalidRequest:
        pass
    try:
        admin.delete_group("", execute=False)
    except InvalidRequest:
        return Caller(frozenset({Right.ADMIN}))
    except NotAuthorized:
        return None
    except NotAllowed as refused:
        rights, _, name = str(refused.fields["given"]).partition(" ")
        return Caller(frozenset(map(Right, rights.split(","))), name)
    raise AssertionError("a group without an id was deleted")
