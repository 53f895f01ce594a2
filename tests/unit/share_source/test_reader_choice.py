"""Which of the two readers a process takes, and why."""

import sys

import pytest

from share_source.errors import NativeReaderMissing, UnknownReader
from share_source.executor.reader_choice import ReaderChoice, is_native, reader_choice
from tests.support.compiled_reader import ensure_compiled
from tests.support.read_tasks import reading_with


@pytest.fixture
def not_built(monkeypatch):
    monkeypatch.setitem(sys.modules, "share_source.executor.native._drain", None)


def test_the_compiled_reader_names_its_librdkafka():
    ensure_compiled()
    with reading_with("native"):
        choice = reader_choice()
    assert choice.name == "native"
    assert choice.why.startswith("librdkafka 2.")


def test_auto_reads_with_python_where_no_compiled_reader_was_built(not_built, caplog):
    with reading_with("auto"), caplog.at_level("INFO"):
        assert not is_native()
        assert not is_native()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("records are read by the python reader: no compiled reader: import of share_source")


def test_a_reader_that_is_demanded_and_missing_is_named(not_built):
    with reading_with("native"), pytest.raises(NativeReaderMissing, match="C compiler"):
        is_native()


def test_an_unknown_reader_is_named():
    with reading_with("natve"), pytest.raises(UnknownReader, match="is natve: set it to native, python or auto"):
        reader_choice()


@pytest.mark.parametrize("written", ["", " ", "auto", "AUTO"])
def test_the_compiled_reader_is_the_default_where_built(written):
    ensure_compiled()
    with reading_with(written):
        assert reader_choice().name == "native"


def test_python_can_be_demanded():
    with reading_with(" Python "):
        assert reader_choice() == ReaderChoice("python", "SHAREGROUP_READER=python")
