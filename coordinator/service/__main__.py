"""``python -m coordinator.service``: a coordinator on demand. It reads its settings from standard input. The first line
of its standard output is Started, or the named error that kept it from serving."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import msgspec

from coordinator.protocol.errors import InternalError, InvalidRequest, ShareGroupError
from coordinator.protocol.wire import DAMAGED, LaunchSettings, Started, encode, encode_error
from coordinator.service.on_demand import log_to, run
from coordinator.service.process.disk_space import disk_full
from coordinator.service.process.process_exit import end_process


def _say(line: bytes) -> None:
    """Write the line to the process that started this one, if that still runs, and close standard output."""
    try:
        os.write(1, line + b"\n")
    except BrokenPipeError:
        pass
    finally:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.close(silence)


def main() -> int:
    """Serve until idle. Returns the exit status: 1 if the coordinator could not serve."""
    try:
        settings = msgspec.json.decode(sys.stdin.buffer.read(), type=LaunchSettings)
    except DAMAGED as error:
        return _fail(InvalidRequest(what=f"The launch settings can't be understood: {error}"), serving=False)
    with log_to(settings.log_path):
        return _serve(settings)


def _serve(settings: LaunchSettings) -> int:
    serving = False
    try:
        for _ in run(settings):
            serving = True
            _say(encode(Started()))
            if settings.start_lock >= 0:
                os.close(settings.start_lock)
    except ShareGroupError as error:
        return _fail(error, serving=serving)
    except OSError as error:
        full = disk_full(Path(settings.endpoint_path), error)
        return _fail(full or InternalError(what="its start", reason=repr(error)), serving=serving)
    except Exception as error:  # noqa: BLE001 - the process that started this one waits for any error
        return _fail(InternalError(what="its start", reason=repr(error)), serving=serving)
    return 0


def _fail(error: ShareGroupError, *, serving: bool) -> int:
    logging.getLogger(__name__).error("the coordinator failed: %s", error, exc_info=True)
    if not serving:
        _say(encode_error(error))
    return 1


if __name__ == "__main__":
    end_process(main())
