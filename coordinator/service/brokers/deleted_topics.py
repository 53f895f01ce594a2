"""Which topics are gone: deleted, or created anew by the same name. What lies at their offsets now is something else.

Rule: a broker that does not know a topic yet, or still knows its predecessor, says the same as one whose topic is gone:
it is asked again before records are given up for good.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from coordinator.service.brokers.cluster import Cluster
from coordinator.service.brokers.subscription import id_of

PAUSES_S = (0.1, 0.3, 0.6)
"""Before the second question, the third and the last."""


def deleted_topic_ids(
    cluster: Cluster, topics: Mapping[str, str], group_id: str, *, topic_ids: bool, past: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Those of the ids (with their topics' names) that no topic of that name has now. ``topic_ids``: whether the group
    knows topics by the cluster's ids. ``past``: ids that went before; a broker that names one of them knows nothing of
    the topic that came after it."""
    for pause_s in (0.0, *PAUSES_S):
        time.sleep(pause_s)
        found = cluster.topics(set(topics.values()))
        ids = {name: id_of(topic, group_id, topic_ids=topic_ids) for name, topic in found.items()}
        gone = frozenset(i for i, name in topics.items() if ids.get(name) not in past - {i} and ids.get(name) != i)
        if not gone:
            break
    return gone
