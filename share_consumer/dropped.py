"""The clean-up after a ShareConsumer that the program dropped without close()."""

from __future__ import annotations

import os

from share_consumer.acknowledgements import Acknowledgements
from share_consumer.fetching import Fetcher
from share_consumer.membership import Membership
from share_consumer.renewal import Renewer
from share_consumer.worker import Worker


def dropped(
    pid: int,
    renewer: Renewer,
    fetcher: Fetcher,
    worker: Worker,
    acknowledgements: Acknowledgements,
    membership: Membership,
) -> None:
    """End the threads and the membership of a dropped consumer. Its records are released; for those that no poll has
    returned, the delivery does not count as a try. In a fork, which has no such threads, nothing happens."""
    if os.getpid() != pid:
        return
    renewer.close()
    fetcher.close()
    worker.close()

    def leave() -> None:
        fetcher.leave()
        membership.close()

    acknowledgements.close(leave)
