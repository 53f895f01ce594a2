"""Named errors of the sink; their form is that of coordinator.errors."""

from __future__ import annotations

from coordinator.errors import ShareGroupError

# --- the archive


class ArchiveNotWritable(ShareGroupError):
    """The archive {path} can't be written: {reason}. Let archive.path name a folder that the driver and every executor
    may create, write and delete files in, as a path or a URI that pyarrow knows (file, s3, gs, abfss, hdfs); its
    credentials come from the environment of each of them."""

    kafka_error = "INVALID_CONFIG"


class ArchiveRowsMissing(ShareGroupError):
    """{count} file(s) that tasks wrote into the archive {path} are not there, {example} for one. A path of a local disk
    is good only where the driver and all executors are one host: let archive.path name a file system that all see. The
    batch was not acknowledged, and comes again at the restart."""

    kafka_error = "INVALID_CONFIG"
