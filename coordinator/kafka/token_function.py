"""A function that gives tokens for OAUTHBEARER, named by a text: ``oauth_cb=MODULE:FUNCTION``. The query, its
executors, ShareConsumers, commands and the coordinator each import the module, and call the function.

Rule: processes pass on a text, not code, and call only what :func:`token_function` marks. Without that mark an option
could name any function of a host. No token is in an error or a log."""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from coordinator.kafka.properties import TOKEN_FUNCTION
from coordinator.protocol.option_errors import InvalidOption

F = TypeVar("F", bound=Callable[..., Any])

_OPTION = f"kafka.{TOKEN_FUNCTION}"
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_MILLISECONDS = 1e11
"""An expiry from this number on is refused: in seconds since 1970 it is in the year 5138, in milliseconds in 1973."""
_MARK = "_sharegroup_token_function"
_MARKED = object()
"""The mark's value. No other module has this object, so an object that has every attribute is not marked."""


def token_function(function: F) -> F:
    """Mark a function that ``oauth_cb`` may name. A decorator: returns the function itself.

    @sharegroup.token_function
    def token(config):
        return signed_token, expiry_in_seconds_since_1970"""
    setattr(function, _MARK, _MARKED)
    return function


def check_token_function(name: str, config: str) -> None:
    """Import the function, and call it once. ``config``: the text that it is called with. Raises InvalidOption if it
    can't be imported here, or gives no token."""
    function = TokenFunction(name)
    try:
        function(config)
    except ValueError:
        raise _refused(function.problem) from None


class TokenFunction:
    """Calls the user's function as confluent_kafka's ``oauth_cb`` is called, and checks what it returns."""

    def __init__(self, name: str) -> None:
        """Import the function that the text names. Raises InvalidOption if the text names no function that can be
        imported here, or one that is not marked."""
        self._name = name.strip()
        self._function = self._imported()
        self.problem = ""
        """Why the last call gave no token; empty if it gave one."""

    def __call__(self, config: str) -> tuple[Any, ...]:
        """Returns token, expiry in seconds, and what else the function returns. Raises ValueError if it returned no
        token, or raised."""
        try:
            returned = self._function(config)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            self.problem = f"{self._name} raised {type(error).__name__}: {error}"
        else:
            problem = _problem_of(returned)
            self.problem = f"{self._name} {problem}" if problem else ""
            if not problem:
                return tuple(returned)
        raise ValueError(self.problem)

    def _imported(self) -> Any:
        module, _, function = self._name.partition(":")
        if not _NAME.fullmatch(self._name) or "__main__" in module.split("."):
            raise _refused(
                "it is MODULE:FUNCTION, a function of a module that the coordinator and the executors import too"
            )
        if module.partition(".")[0] in sys.stdlib_module_names:  # the import of some such modules runs a program
            raise _refused(f"{module} is a module of Python's own")
        try:
            found = getattr(importlib.import_module(module), function, None)
        except Exception as error:  # noqa: BLE001 - an import runs the user's code
            raise _refused(f"{module} can't be imported here ({type(error).__name__}: {error})") from None
        if not callable(found):
            raise _refused(f"{module} has no function {function}")
        if getattr(found, _MARK, None) is not _MARKED:
            raise _refused(
                f"{self._name} is not marked as a token function: let its owner decorate it with "
                "@sharegroup.token_function"
            )
        return found


def _refused(problem: str) -> InvalidOption:
    return InvalidOption(option=_OPTION, problem=f"{problem}.")


def _problem_of(returned: Any) -> str:
    """Returns what is wrong with the token that the function returned; empty if nothing is."""
    if not isinstance(returned, tuple) or len(returned) < 2 or not isinstance(returned[0], str):
        return "returned no tuple (token, expiry in seconds since 1970)"
    expiry = returned[1]
    if isinstance(expiry, bool) or not isinstance(expiry, (int, float)):
        return "returned an expiry that is no number; it is seconds since 1970"
    if expiry >= _MILLISECONDS:
        return "returned an expiry in milliseconds; return expiry_ms / 1000"
    return "" if expiry > time.time() else "returned a token that has expired"
