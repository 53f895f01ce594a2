"""Wrong arguments of a redrive are refused before a broker is asked."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.protocol.option_errors import InvalidOption
from sharegroup import redrive

OPTIONS = {"kafka.bootstrap.servers": "localhost:1"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"dry_run": "false"}, "dry_run is True or False, and 'false' is of type str"),
        ({"dry_run": None}, "dry_run is True or False"),
        ({"keep_timestamp": "no"}, "keep_timestamp is True or False"),
        ({"dlq_topic": ["dlq"]}, r"dlq_topic is a topic's name, and \['dlq'\] is of type list"),
        ({"to": b"orders"}, "to is a topic's name"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        redrive(**{"dlq_topic": "dlq", "options": OPTIONS, **arguments})


@pytest.mark.parametrize("name", ["dlq_topic", "to"])
def test_an_empty_topic_is_named(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"The option {name} is wrong: it is empty; name a topic"):
        redrive(**{"dlq_topic": "dlq", "options": OPTIONS, name: ""})
