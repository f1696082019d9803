"""One request to an object store: waited for, tried again, and told in plain words when it fails.

In: a call of the client library. Out: what it gives, or an `OSError` that names the object. A store that is busy (429, 503),
a connection that breaks or stalls is tried again, each time after a longer pause; what the server refuses for good is not. A
limit holds for all requests of a process; whoever starts several processes for one run shares it out among them.

Nothing of the library's own text is passed on: it quotes addresses, and these may carry keys.
"""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from tokpress.errors import UsageError

T = TypeVar("T")
_PID = os.getpid()

REQUESTS = "TOKPRESS_REQUESTS"  # in flight at once, in a whole run
TIMEOUT = "TOKPRESS_REQUEST_TIMEOUT"  # seconds until a request that does not end is given up and tried again
_REQUESTS = 64
_TIMEOUT = 60.0
_ATTEMPTS = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 20.0
_TOO_MANY_PAUSE = 1.0  # after a 429; how long the server would like it to be, the client library does not say
_STATUS = re.compile(r"status(?: code)?:? ?([45]\d\d)")
_BUSY = {408, 409, 425, 429, 500, 502, 503, 504}  # 409: another request for the same key is under way


class ObjectChanged(OSError):  # noqa: N818 - reads as what happened
    """The object is no longer the one that was asked for."""


class RequestFailed(OSError):  # noqa: N818
    """The store did not answer, or not well, however often it was asked."""


def library() -> Any:
    """The client library, or how to get it."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise UsageError(
            "reading and writing s3://, gs://, az:// and https:// needs a package that is not installed. "
            "Install it: pip install 'tokpress[remote]'"
        ) from None
    return obstore


def requests_in_flight() -> int:
    return max(int(_number(REQUESTS, _REQUESTS)), 1)


def request_timeout() -> float:
    return _number(TIMEOUT, _TIMEOUT)


def _number(variable: str, default: float) -> float:
    value = os.environ.get(variable, "")
    try:
        return float(value) if value else default
    except ValueError:
        raise UsageError(f"{variable}={value!r} is not a number. Give one, or leave it out ({default:g}).") from None


@cache
def _slots() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(requests_in_flight())


def request(place: str, call: Callable[[], T], *, creates: bool = False) -> T:
    """What the call gives, tried again while that can help. It must do no harm to make it twice.

    With `creates` a conflict means that there is such an object.
    """
    if os.getpid() != _PID:
        raise UsageError(
            f"{place} is asked for in a process that was forked from one that had loaded the client library, which does not "
            'survive that. Start processes anew: DataLoader(..., multiprocessing_context="spawn"), or use tokpress.Loader.'
        )
    errors = library().exceptions
    for attempt in range(_ATTEMPTS):
        try:
            with _slots():
                return call()
        except ObjectChanged as error:
            raise ObjectChanged(error.errno, error.strerror, place) from None
        except FileExistsError:
            raise
        except (errors.BaseError, OSError) as error:
            status = _status(error)
            failure = _told(error, status, place, creates=creates)
            passes = isinstance(failure, RequestFailed) and (status is None or status in _BUSY)
            if not passes or attempt == _ATTEMPTS - 1:
                raise failure from None
        first, least = (_TOO_MANY_PAUSE, 1.0) if status == 429 else (_FIRST_PAUSE, 0.5)
        time.sleep(min(first * 2**attempt, _LONGEST_PAUSE) * random.uniform(least, least + 0.5))
    raise AssertionError("unreachable")


def _status(error: BaseException) -> int | None:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _told(error: BaseException, status: int | None, place: str, *, creates: bool) -> OSError:
    errors = library().exceptions
    exists = isinstance(error, errors.AlreadyExistsError)
    if creates and exists:
        return FileExistsError(errno.EEXIST, "there is such an object", place)
    if exists or status in _BUSY:  # also where the library takes a busy store for one that has no such object
        return RequestFailed(errno.EIO, f"the store is busy or failing (status {status})", place)
    if isinstance(error, errors.NotFoundError | FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is no such object", place)
    if isinstance(error, errors.PreconditionError | errors.NotModifiedError):
        return ObjectChanged(errno.ESTALE, "the object was changed since it was first looked at", place)
    if isinstance(error, errors.PermissionDeniedError | errors.UnauthenticatedError) or status in (401, 403):
        return PermissionError(
            errno.EACCES,
            "the store refuses access: are the credentials there, valid and not expired, and may they do this? "
            "They are found as the cloud's own tools find them",
            place,
        )
    why = (
        f"the store answered with status {status}" if status else "the store cannot be reached, or its answer broke off"
    )
    return RequestFailed(errno.EIO, why, place)
