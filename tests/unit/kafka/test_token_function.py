"""Which functions ``oauth_cb`` calls."""

from __future__ import annotations

import pytest

from coordinator.kafka.token_function import TokenFunction, check_token_function
from coordinator.protocol.option_errors import InvalidOption
from sharegroup import token_function

calls: list[str] = []


def unmarked(config: str) -> tuple[str, float]:
    calls.append(config)
    return "token", 2e9


@token_function
def marked(config: str) -> tuple[str, float]:
    return unmarked(config)


class Anything:
    """A callable that has every attribute, as objects of unittest.mock have."""

    def __getattr__(self, name: str) -> Anything:
        return self

    def __call__(self, config: str) -> tuple[str, float]:
        return unmarked(config)


anything = Anything()


def test_a_function_that_its_owner_marked_is_called():
    calls.clear()
    check_token_function(f"{__name__}:marked", "text")
    assert calls == ["text"]


def test_a_function_without_the_mark_is_never_called():
    calls.clear()
    for name in ("unmarked", "anything"):
        with pytest.raises(InvalidOption, match=r"not marked.*@sharegroup\.token_function"):
            check_token_function(f"{__name__}:{name}", "text")
    assert not calls


@pytest.mark.parametrize("module", ["os", "idlelib.idle", "of_a_user.__main__"])
def test_a_module_whose_import_may_run_a_program_is_not_imported(module: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"{name} is imported"))
    with pytest.raises(InvalidOption):
        TokenFunction(f"{module}:system")
