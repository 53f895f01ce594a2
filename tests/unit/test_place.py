"""A coordinator on demand knows the groups of those that it takes the place of, and of no others."""

from coordinator.service.on_demand import place_of


def test_the_coordinators_of_one_runtime_directory_have_one_place_and_no_others_have_it(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert place_of(one) == place_of(one) != place_of(two)
    assert [path.name for path in one.iterdir()] == ["place"]
