"""The admin client that a program imports: ``from sharegroup import Admin``. Where no coordinator runs it reads the
state store in this process."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.client.admin import ReadStore, ShareAdmin


class Admin(ShareAdmin):
    """An admin client of share groups; ``conf`` and the others as in :class:`~coordinator.client.admin.ShareAdmin`."""

    def __init__(
        self,
        conf: Mapping[str, object],
        *,
        read_store: ReadStore | None = None,
        timeout_ms: int | None = None,
        token: str | None = None,
    ) -> None:
        if read_store is None:
            from coordinator.service.read_only import read_store  # its imports take a second
        super().__init__(conf, read_store=read_store, timeout_ms=timeout_ms, token=token)
