"""Checks the token with which a person signs in.

Rule: where standalone coordinators run, they check it themselves, and every call of the session carries it, so that
their audit log names the person. A coordinator on demand belongs to the user who runs the page; the page then checks
the token against a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from coordinator.admin.admin import Admin
from coordinator.protocol.errors import InvalidRequest, NotAllowed, NotAuthorized
from coordinator.protocol.rights import Right, Tokens
from sharegroup.web.sessions import Visitor


class Logins(Protocol):
    """Finds the holder of a token."""

    def visitor(self, token: str) -> Visitor | None:
        """Returns the person with this token; None if nobody has it, or it has no right to read.

        Raises:
            ShareGroupError: no coordinator can be asked.
        """


class OwnTokens:
    """Tokens of the page's own. ``admin`` speaks for all their holders."""

    def __init__(self, tokens: Tokens, admin: Admin) -> None:
        self._tokens, self._admin = tokens, admin

    def visitor(self, token: str) -> Visitor | None:
        """The holder of the token, as the file names it."""
        caller = self._tokens.caller(f"Bearer {token}".encode())
        if caller is None or not caller.rights & {Right.READ, Right.ADMIN}:
            return None
        return Visitor(name=caller.name, is_admin=Right.ADMIN in caller.rights, admin=self._admin)


class CoordinatorTokens:
    """Tokens of standalone coordinators. ``config`` names them in share.coordinator.endpoint."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def visitor(self, token: str) -> Visitor | None:
        """The holder of the token, as the coordinator knows it."""
        admin = Admin(self._config, token=token)
        try:
            found = _rights(admin)
        except BaseException:
            admin.close()
            raise
        if found is None:
            admin.close()
            return None
        name, is_admin = found
        return Visitor(name=name, is_admin=is_admin, admin=admin, owns_admin=True)


def _rights(admin: Admin) -> tuple[str, bool] | None:
    """Returns the name of the token's holder and whether it may act; None if it may not even read. An earlier
    coordinator does not say; but it checks rights first, so a token that may act gets the error of the missing group
    id."""
    try:
        holder = admin.who_am_i()
        is_admin = Right.ADMIN.value in holder.rights
        return (holder.name, is_admin) if is_admin or Right.READ.value in holder.rights else None
    except NotAuthorized:
        return None
    except InvalidRequest:
        pass
    try:
        admin.delete_group("", execute=False)
    except InvalidRequest:
        return "", True
    except NotAuthorized:
        return None
    except NotAllowed as refused:
        rights, _, name = str(refused.fields["given"]).partition(" ")
        return (name, False) if Right.READ.value in rights.split(",") else None
    raise AssertionError("a group without an id was deleted")
