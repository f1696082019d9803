"""Every error tokpress raises on purpose, in one tree.

    TokpressError            exit 1   anything below; catch this one
    ├── UsageError           exit 2   the call itself is wrong: an option, a path, a combination
    │   └── TokenizerError   exit 2   the tokenizer cannot be loaded, or cannot do what was asked of it
    │       └── CannotEncode exit 2   it has no ids for a text
    ├── InputError           exit 1   an input cannot be read at all (a bad *record* is a reject, not an error)
    ├── ParityError          exit 1   the fast engine and the reference disagree
    ├── IdRangeError         exit 1   an engine returned an id outside the tokenizer's vocabulary
    ├── StoreError           exit 1   a store is missing, incomplete or damaged
    ├── NotEnoughMemory      exit 1   a record needs more than `--memory` leaves for it
    ├── TooManyRejects       exit 3   more bad records than `--max-rejects` allows
    └── NothingWritten       exit 3   not one good record was found

A message names the thing, says why it matters, and ends with what to do next.
"""


class TokpressError(Exception):
    """Base of all errors a user can cause or must act upon.

    try:
        store = tokpress.open("tokens")
    except tokpress.TokpressError as error:
        print(error)  # the thing, why it matters, and the next command
    """

    exit_code = 1


class UsageError(TokpressError):
    exit_code = 2


class TokenizerError(UsageError):
    pass


class CannotEncode(TokenizerError):  # noqa: N818 - reads as what happened
    """Of a document in a build it is no error but a reject."""


class InputError(TokpressError):
    pass


class ParityError(TokpressError):
    pass


class IdRangeError(TokpressError):
    pass


class StoreError(TokpressError):
    pass


class NotEnoughMemory(TokpressError):  # noqa: N818 - reads as what happened
    pass


class TooManyRejects(TokpressError):  # noqa: N818 - reads as what happened
    exit_code = 3


class NothingWritten(TokpressError):  # noqa: N818 - reads as what happened
    exit_code = 3
