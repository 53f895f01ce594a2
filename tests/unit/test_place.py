"""A coordinator on demand knows the groups of those that it takes the place of, and of no others."""

import shutil

from coordinator.service.on_demand import place_of


def test_the_coordinators_of_one_runtime_directory_have_one_place_and_no_others_have_it(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert place_of(one) == place_of(one) != place_of(two)


def test_no_cleaner_of_files_makes_a_coordinator_a_stranger(tmp_path):
    one = tmp_path / "one"
    one.mkdir()
    before = place_of(one)
    shutil.rmtree(one)
    assert place_of(one) == before
    one.mkdir()
    assert place_of(one) == before
    (tmp_path / "link").symlink_to(one)
    assert place_of(tmp_path / "link") == before
