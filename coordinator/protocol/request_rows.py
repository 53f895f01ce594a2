"""Arrow rows in the body of a request: a client writes them here, and a coordinator reads what anybody may have sent.

The body is the length of the JSON (4 bytes, little endian), the JSON, and an Arrow IPC stream of one schema and its
record batches. Rule: nothing is decoded before it was checked, so that reading takes no more memory than the body has:

1. The schema must be the expected one.
2. A message that is no record batch is refused, and so is a batch with compressed buffers, before these are read.
3. A batch is validated in full before a value of it is read."""

from __future__ import annotations

import struct

import pyarrow as pa

from coordinator.protocol.errors import InvalidRequest

_LENGTH = struct.Struct("<I")
_MESSAGE_HEADER, _BATCH_COMPRESSION = 2, 3
"""Places of fields in the flatbuffer tables Message and RecordBatch (Arrow's Message.fbs)."""
_UNCOMPRESSED = pa.ipc.IpcWriteOptions(compression=None)


def body_with_rows(request: bytes, rows: pa.Table) -> pa.Buffer:
    """The body of a request (as JSON) with its rows."""
    sink = pa.BufferOutputStream()
    sink.write(_LENGTH.pack(len(request)) + request)
    with pa.ipc.new_stream(sink, rows.schema, options=_UNCOMPRESSED) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def split_body(body: pa.Buffer) -> tuple[bytes, pa.Buffer]:
    """The JSON in a body with rows, and the rows as bytes, which are not checked yet. Raises InvalidRequest if the body
    ends before its JSON does."""
    if body.size < _LENGTH.size:
        raise InvalidRequest(what="This request comes with Arrow rows, and its body has none.")
    (length,) = _LENGTH.unpack(body.slice(0, _LENGTH.size).to_pybytes())
    end = _LENGTH.size + length
    if end > body.size:
        raise InvalidRequest(what=f"The body of {body.size} bytes ends before its JSON of {length} bytes.")
    return body.slice(_LENGTH.size, length).to_pybytes(), body.slice(end)


def read_rows(data: pa.Buffer, schema: pa.Schema) -> pa.Table:
    """The rows in an Arrow IPC stream. Raises InvalidRequest for another schema, compressed or invalid rows."""
    try:
        return pa.Table.from_batches(_batches(data, schema), schema=schema)
    except (pa.ArrowException, struct.error, ValueError, OSError) as error:  # its text may hold bytes of the body
        what = f"The rows are no valid Arrow record batches ({type(error).__name__})."
        raise InvalidRequest(what=what) from None


def _batches(data: pa.Buffer, schema: pa.Schema) -> list[pa.RecordBatch]:
    messages = pa.ipc.MessageReader.open_stream(data)
    columns = f"The rows need the columns {', '.join(schema.names)}, and no others"
    first = next(messages, None)
    if first is None or first.type != "schema" or not pa.ipc.read_schema(first).equals(schema):
        raise InvalidRequest(what=f"{columns}.")
    batches: list[pa.RecordBatch] = []
    for message in messages:
        if message.type != "record batch":
            raise InvalidRequest(what="The rows contain an Arrow message that is no record batch.")
        if _is_compressed(message.metadata):
            raise InvalidRequest(what="The rows are compressed; send them uncompressed.")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        batches.append(batch)
    return batches


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether the buffers of a record batch are compressed. Arrow must have verified its message's flatbuffer."""
    data = memoryview(metadata)
    message = _follow(data, 0)
    return _field(data, _follow(data, _field(data, message, _MESSAGE_HEADER)), _BATCH_COMPRESSION) != 0


def _follow(data: memoryview, at: int) -> int:
    """The position that the offset at ``at`` points to."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: memoryview, table: int, index: int) -> int:
    """The position of a field of the table; 0: the table does not have the field."""
    fields = table - int(struct.unpack_from("<i", data, table)[0])
    if fields < 0 or 4 + 2 * index >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, fields + 4 + 2 * index)[0])
    return table + offset if offset else 0
