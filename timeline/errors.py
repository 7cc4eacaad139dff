"""The tree of Strandline's errors.

::

    StrandlineError
    ├─ ConfigError (also ValueError)        a setting, its value, what is allowed
    ├─ InputError (also ValueError)         the caller's rows can't be written as they are
    ├─ RowsChangedError                     rows were computed twice, with different results
    ├─ TaskFailedError                      Spark gave up a task whose worker ended repeatedly
    ├─ TableError
    │   ├─ TableNotFoundError
    │   ├─ UnsupportedTableError            version, type or feature that can't be handled
    │   └─ CorruptMetadataError
    ├─ StorageError
    │   ├─ StorageUnavailableError
    │   │   ├─ CreateUnansweredError        the file may still appear
    │   │   └─ FilesNotDeletedError         it tells which
    │   ├─ PathNotFoundError
    │   │   └─ BucketNotFoundError          of an object store
    │   └─ AlreadyExistsError               lost an exclusive create
    ├─ TimelineError
    │   ├─ InstantNotFoundError
    │   ├─ IllegalTransitionError
    │   ├─ ConcurrentWriteError
    │   │   └─ WriteConflictError           another writer changed the same file groups
    │   ├─ CommitOutcomeUnknownError        the commit may or may not have taken effect
    │   ├─ LockError                        the table's lock wasn't acquired, or was lost
    │   └─ LeaseError                       a reader's lease wasn't granted, or was lost
    ├─ StoreError                           a view's own store: can't be read or written
    │   ├─ StoreFullError                   its disk is full
    │   ├─ StoreUnavailableError            its database can't be reached, or doesn't answer
    │   ├─ StoreLockedError                 another process has it open
    │   ├─ StoreBehindError                 another server has changed it since it was read
    │   ├─ RecordLostError                  its record of a table is damaged
    │   └─ BlobLostError                    it was read, and lacks a blob that its rows reference
    ├─ FleetError                           state that the servers of a fleet share
    │   ├─ StateConflictError               a key isn't at the expected version
    │   ├─ StateUnavailableError            the store can't be reached
    │   └─ NoServerError                    no server of a table's group answers
    ├─ ViewError
    │   ├─ ViewBehindError                  the caller's timeline can't be answered
    │   └─ RootNotAllowedError              the base path is outside the service's roots
    └─ ServiceError                         only clients of the service raise these
        ├─ ServiceUnreachableError
        ├─ ServiceTimeoutError
        ├─ ServiceBusyError                 it says when to ask again
        ├─ RemoteFailureError               the service's own answer, with its status
        └─ BadAnswerError

``code``, the class's name with underscores, identifies an error on the wire: a class that is
renamed says its former code itself. ``status`` is its HTTP status, ``retryable`` tells whether the
same call may succeed later without a change by the caller. All three are class attributes, so an
error pickles with its message and hint alone. The classes of ``ViewError`` and ``ServiceError`` are
here too: they cross process boundaries, and the table ``code → class`` must have every one.
"""

from __future__ import annotations

import re
from typing import ClassVar


class StrandlineError(Exception):
    """The base class of all errors that Strandline raises on purpose.

    Attributes:
        hint: What the reader can do about it, or ``None``.
        detail: Information for operators only (paths, targets of links), or ``None``. It is part of
            the error's text, which is logged, but never sent to clients.
    """

    code: ClassVar[str] = "strandline"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, status: int | None = None, retryable: bool | None = None) -> None:
        # NameOfClassError → "name_of_class"; the others are as of the class above if not given.
        if "code" not in vars(cls):
            cls.code = re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()
        cls.status = cls.status if status is None else status
        cls.retryable = cls.retryable if retryable is None else retryable

    def __init__(self, message: str, *, hint: str | None = None, detail: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.detail = detail

    @property
    def message(self) -> str:
        """The message without hint and detail."""
        return str(self.args[0])

    def __str__(self) -> str:
        more = "; ".join(part for part in (self.hint, self.detail) if part is not None)
        return f"{self.message} ({more})" if more else self.message


class ConfigError(StrandlineError, ValueError, status=400):
    """A setting's value isn't allowed; the message names setting, value and what is allowed."""


class InputError(StrandlineError, ValueError, status=400):
    """The caller's data can't be written as it is; nothing has been written."""


class RowsChangedError(StrandlineError, status=409, retryable=True):
    """The caller's rows were computed twice with different results; nothing was committed."""


class TaskFailedError(StrandlineError, retryable=True):
    """Spark gave up a task whose worker or executor ended repeatedly; nothing was committed."""


class TableError(StrandlineError):
    """A table can't be used as it is on storage."""


class TableNotFoundError(TableError, status=404):
    """There is no table at the base path."""


class UnsupportedTableError(TableError, status=422):
    """The table's version, type or a feature of it isn't supported."""


class CorruptMetadataError(TableError):
    """A metadata file can't be read; the message names the file."""


class StorageError(StrandlineError):
    """A call to the file system failed."""


class StorageUnavailableError(StorageError, status=503, retryable=True):
    """The file system couldn't be reached, or refused the call."""


class CreateUnansweredError(StorageUnavailableError):
    """A remote storage didn't say whether it created a file, which may still appear."""


class FilesNotDeletedError(StorageUnavailableError):
    """Some files of many weren't deleted; all others were.

    Attributes:
        paths: Those that weren't.
    """

    paths: frozenset[str] = frozenset()


class PathNotFoundError(StorageError, status=404):
    """A file doesn't exist."""


class BucketNotFoundError(PathNotFoundError):
    """An object store's bucket doesn't exist."""


class AlreadyExistsError(StorageError, status=409):
    """An exclusive create found the name taken."""


class TimelineError(StrandlineError):
    """An operation on the timeline failed."""


class InstantNotFoundError(TimelineError, status=404):
    """The instant isn't on the timeline."""


class IllegalTransitionError(TimelineError, status=409):
    """An instant can't move from its state to the requested one."""


class ConcurrentWriteError(TimelineError, status=409, retryable=True):
    """Another writer was first; the write must be redone."""


class LockError(TimelineError, status=423, retryable=True):
    """The lock of the table's writers wasn't acquired, couldn't be reached, or was lost."""


class LeaseError(TimelineError, status=409, retryable=True):
    """A reader's lease wasn't granted, as a clean was first; or it expired or was revoked."""


class WriteConflictError(ConcurrentWriteError):
    """Another writer changed the same file groups; the write was rolled back and must be redone."""


class CommitOutcomeUnknownError(TimelineError, status=500):
    """The call that completes a commit failed, and storage doesn't show whether it took effect.

    Not retryable: if it did, inserting the rows again would duplicate them.

    Attributes:
        instant: Requested time of the commit; ``""`` if not known.
    """

    instant: str = ""


class StoreError(StrandlineError, retryable=True):
    """A view's own store can't be read or written; the table is unaffected."""


class StoreFullError(StoreError, status=507):
    """The store's disk is full; what was stored before can still be read."""


class StoreUnavailableError(StoreError, status=503):
    """A store's database can't be reached, or doesn't answer; another server may be able to."""


class StoreLockedError(StoreError, status=503):
    """Another running process has the store open."""


class RecordLostError(StoreError):
    """A store's record of a table is damaged or incomplete; it is written again."""


class BlobLostError(StoreError):
    """A shared store was read, but a blob that its rows reference is missing or damaged."""


class StoreBehindError(StoreError, status=503):
    """Another server has changed the shared store since this one read it."""


class FleetError(StrandlineError):
    """State that the servers of a fleet share can't be read or written."""


class StateConflictError(FleetError, status=409, retryable=True):
    """A key of the state store isn't at the expected version; nothing was changed."""


class StateUnavailableError(FleetError, status=503, retryable=True):
    """The state store can't be reached; a write may or may not have been carried out."""


class NoServerError(FleetError, status=503, retryable=True):
    """No server of the group that has a table answers, and this one may not."""


class ViewError(StrandlineError):
    """A file-system view can't answer."""


class ViewBehindError(ViewError, status=400, retryable=True):
    """The caller's timeline is neither kept nor derivable (HTTP 400 on Hudi's routes)."""


class RootNotAllowedError(ViewError, status=403):
    """The base path lies outside the roots that the service may serve."""


class ServiceError(StrandlineError, status=502):
    """A call to the timeline service failed; raised by its clients only."""


class ServiceUnreachableError(ServiceError, retryable=True):
    """No connection to the service.

    Attributes:
        may_have_arrived: Whether the service may have received the request; false if it is certain
            that no connection was made for it.
    """

    may_have_arrived: bool = True


class ServiceTimeoutError(ServiceError, status=504, retryable=True):
    """The service didn't answer in time."""


class ServiceBusyError(ServiceError, status=503, retryable=True):
    """The service is still computing the answer, or is overloaded, and says when to ask again.

    Attributes:
        retry_after_s: Seconds until the client should ask again.
    """

    retry_after_s: float = 1.0


class RemoteFailureError(ServiceError):
    """The service answered with an error that has no separate class here.

    Attributes:
        answered: HTTP status of the answer; 0 if unknown.
    """

    answered: int = 0


class BadAnswerError(ServiceError):
    """The service's answer is not what the route promises."""
