"""Directories for secrets: made for the user alone, and refused by name where somebody else could reach into them."""

import os
import stat
from types import SimpleNamespace

import pytest

from coordinator.config.secret_files import own_dir
from coordinator.protocol.errors import UnsafeDirectory

STRANGER = 65534


@pytest.fixture
def stranger_owns(monkeypatch):
    """Lets chosen paths look as if another user owned them."""
    right, theirs = os.lstat, set()

    def lstat(path, **options):
        found = right(path, **options)
        if str(path) not in theirs:
            return found
        return SimpleNamespace(st_uid=STRANGER, st_mode=found.st_mode)

    monkeypatch.setattr("pathlib.Path.lstat", lstat)
    return theirs


def test_the_directory_is_created_for_the_user_alone(tmp_path):
    made = own_dir(tmp_path / "a" / "b", named=False)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert own_dir(made, named=False) == made


def test_a_symbolic_link_is_refused_unless_a_person_named_the_folder(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(UnsafeDirectory, match=f"it is a symbolic link of user {os.getuid()}"):
        own_dir(tmp_path / "link", named=False)
    assert own_dir(tmp_path / "link", named=True), "a person named it, and may use links"


def test_a_link_that_leads_nowhere_is_refused_by_name(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(UnsafeDirectory, match="it can't be made"):
        own_dir(tmp_path / "link", named=False)


def test_a_parent_folder_of_another_user_is_refused(tmp_path, stranger_owns):
    stranger_owns.add(str(tmp_path))
    with pytest.raises(UnsafeDirectory, match=f"{tmp_path} belongs to user {STRANGER}"):
        own_dir(tmp_path / "mine", named=False)


def test_a_link_of_another_user_in_the_path_is_refused(tmp_path, stranger_owns):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert own_dir(tmp_path / "link" / "mine", named=False)
    stranger_owns.add(str(tmp_path / "link"))
    with pytest.raises(UnsafeDirectory, match=f"link belongs to user {STRANGER}"):
        own_dir(tmp_path / "link" / "mine", named=False)


def test_a_parent_writable_for_all_is_refused_unless_it_is_sticky(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafeDirectory, match=f"others may replace what is in {tmp_path}"):
        own_dir(tmp_path / "mine", named=False)
    tmp_path.chmod(0o1777)
    assert own_dir(tmp_path / "mine", named=False)


def test_a_directory_that_this_user_may_not_write_to_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write to each that is not mounted read-only
    with pytest.raises(UnsafeDirectory, match="may not write to it, or its file system is read-only"):
        own_dir(tmp_path / "read-only", named=True)
