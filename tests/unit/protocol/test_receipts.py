"""The digest in a row's column ``receipt``."""

from itertools import product

from coordinator.protocol import receipts
from coordinator.protocol.receipts import incarnation_of


def test_the_digest_of_a_topic_never_changes() -> None:
    """Executors of one version may read what a driver of another has planned."""
    assert receipts.receipt_digest("billing", "1f0c2a7e", "kNwDIBnBRnqgSjlfZJQGPg") == 3314078386985002436


def test_no_two_groups_incarnations_or_topics_have_one_digest() -> None:
    """A group id may be any text, so names can run into each other."""
    names = ["a", "b", "ab", "", "a\0b", "\ud800"]
    kinds = [(group_id, *ids) for group_id in names for ids in product(("a", "b", "ab"), repeat=2)]
    assert len({receipts.receipt_digest(*each) for each in kinds}) == len(kinds)


def test_a_plan_id_names_the_groups_incarnation() -> None:
    assert incarnation_of("1f0c2a7e.12") == "1f0c2a7e"
