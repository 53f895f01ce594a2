"""Topics that are created again while ShareConsumers use them."""

from __future__ import annotations

from coordinator.service.questions.remade_topics import RemadeTopics
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, mistake

ANEW = "service/test_topics_made_anew::test_"


@mistake(
    rules.TOPIC_IS_ITS_ID,
    tests=(ANEW + "no_outcome_of_an_old_topics_record_is_a_success",),
    simulator=(Seeds("topics", 3),),
)
def answer_outcomes_of_an_old_topic_as_success(patch: Patch) -> None:
    patch.setattr(RemadeTopics, "look_at_acknowledged", lambda self, partitions, group: dict)


@mistake(
    rules.TOPIC_IS_ITS_ID,
    tests=(ANEW + "no_new_record_is_handed_out_as_the_old_topics",),
    simulator=(Seeds("topics", 3),),
)
def hand_out_records_without_a_look_at_their_topics(patch: Patch) -> None:
    patch.setattr(RemadeTopics, "look", lambda self, names, group: lambda topics: frozenset())
