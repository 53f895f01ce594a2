"""Arrow batches that the compiled code fills, like those of share_source.executor.record_batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from share_source.arrow_schema import arrow_schema
from share_source.executor.native import _drain
from share_source.executor.record_batches import BATCH_BYTES, BATCH_RECORDS


class NativeRows:
    """Collects records for one Arrow batch after the other."""

    most_records = BATCH_RECORDS
    most_bytes = BATCH_BYTES

    def __init__(self, include_headers: bool) -> None:
        self._schema = arrow_schema(include_headers)
        self.builder = _drain.Builder(include_headers)

    def __len__(self) -> int:
        return len(self.builder)

    @property
    def room(self) -> int:
        """How many more records fit; 0: call :meth:`build`."""
        return max(self.most_records - len(self.builder), 0) if self.builder.nbytes < self.most_bytes else 0

    def build(self) -> pa.RecordBatch:
        """Returns the collected records as one Arrow batch, without a copy, and empties the collection."""
        return pa.record_batch(_Batch(self._schema, self.builder))


class _Batch:
    """Passes a batch on by Arrow's PyCapsule protocol."""

    def __init__(self, schema: pa.Schema, builder: _drain.Builder) -> None:
        self._schema, self._builder = schema, builder

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self._schema.__arrow_c_schema__(), self._builder.release()
