"""A properties file is read as Java reads it; what would surprise is named, and no value is."""

import os
from pathlib import Path

import pytest

from coordinator.config.properties_file import PUBLIC, read_properties
from coordinator.kafka.properties import PROPERTIES, SECRETS
from coordinator.protocol.errors import InvalidPropertiesFile
from sharegroup.check.options import read_options


def file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "file"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return str(path)


def test_a_secret_that_others_may_read_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for prefix in ["", "kafka."]:
        for key in sorted(SECRETS | PROPERTIES):
            caplog.clear()
            path = file(tmp_path, f"{prefix}{key}=hunter2", 0o644)
            assert read_properties(path) == {prefix + key: "hunter2"}
            expected = [f"{path} holds a secret ({prefix}{key}), and others may read it: chmod 600 {path}"]
            assert caplog.messages == (expected if key in SECRETS - PUBLIC else [])


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640])
def test_a_secret_that_others_may_not_read_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int) -> None:
    read_properties(file(tmp_path, "sasl.password=hunter2", mode))
    assert not caplog.messages


def test_a_variable_in_place_of_a_secret_is_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = file(tmp_path, "sasl.password=${env:PASSWORD}", 0o644)
    assert read_properties(path, {"PASSWORD": "hunter2"}) == {"sasl.password": "hunter2"}
    assert not caplog.messages


@pytest.mark.parametrize("text", ["a=1\nb=2\na = 3", "a:1\nb=2\n\\u0061 3", '{"a": "1", "b": "2", "a": "3"}'])
def test_a_key_that_stands_twice_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    path = file(tmp_path, text)
    assert read_options(path) == {"a": "3", "b": "2"}
    assert caplog.messages == [f"{path} has a more than once: the last one counts"]


@pytest.mark.parametrize("text", ["a=1\n", '{"a": 1}'])
def test_options_come_also_from_a_pipe(text: str) -> None:
    """As in `sharegroup check --options <(print-options)`: a pipe is read once."""
    reads, writes = os.pipe()
    with os.fdopen(reads), os.fdopen(writes, "w") as pipe:
        pipe.write(text)
        pipe.close()
        assert read_options(f"/dev/fd/{reads}") == {"a": "1"}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("JSON", '["a=1"]'),
        ("JSON", ' [{"a": "1"}]'),
        ("YAML", "---\na: 1\n"),
        ("YAML", "# options\n- a: 1\n"),
        ("YAML", "options:\n  a: 1\n"),
    ],
)
def test_another_form_is_refused_by_its_name(tmp_path: Path, form: str, text: str) -> None:
    for read in (read_properties, read_options):
        with pytest.raises(InvalidPropertiesFile, match=rf"it is {form}, and has to have a line KEY=VALUE"):
            read(file(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb: 2", {"a": "1", "b": "2"}),
        ("a = x:\\\n  y", {"a": "x:y"}),
        ("# ---\n! - x\na=[1]", {"a": "[1]"}),
        ("a:\nb=2", {"a": "", "b": "2"}),
        ("  a=1\n  b=2", {"a": "1", "b": "2"}),
    ],
)
def test_javas_forms_are_no_other_form(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    assert read_properties(file(tmp_path, text)) == found
