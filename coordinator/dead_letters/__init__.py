"""Dead letters (KIP-1191): the format, the source records that they copy, and how they are written.

The coordinator and the sink's executors share this folder: both write the same dead letter of a record. When the
coordinator writes dead letters is decided in :mod:`coordinator.service.dead_letters`; they are read again in
:mod:`share_sink.redrive`."""
