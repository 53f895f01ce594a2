"""The end of a ShareConsumer that the program dropped without close()."""

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
    """End the threads and the membership of a consumer that the program dropped without close(). Its records are
    released; those that no poll has returned count no try. A fork has none of them."""
    if os.getpid() != pid:
        return
    renewer.close()
    fetcher.close()
    worker.close()

    def leave() -> None:
        fetcher.leave()
        membership.close()

    acknowledgements.close(leave)
