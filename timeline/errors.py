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

``code`` identifies an error on the wire, ``status`` is its HTTP status, ``retryable`` tells whether
the same call may succeed later without a change by the caller. All three are class attributes, so
an error pickles with its message and hint alone. The classes of ``ViewError`` and ``ServiceError``
are here too: they cross process boundaries, and the table ``code → class`` must have every one.
"""

from __future__ import annotations

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


class ConfigError(StrandlineError, ValueError):
    """A setting's value isn't allowed; the message names setting, value and what is allowed."""

    code = "config"
    status = 400


class InputError(StrandlineError, ValueError):
    """The caller's data can't be written as it is; nothing has been written."""

    code = "input"
    status = 400


class RowsChangedError(StrandlineError):
    """The caller's rows were computed twice with different results; nothing was committed."""

    code = "rows_changed"
    status = 409
    retryable = True


class TaskFailedError(StrandlineError):
    """Spark gave up a task whose worker or executor ended repeatedly; nothing was committed."""

    code = "task_failed"
    retryable = True


class TableError(StrandlineError):
    """A table can't be used as it is on storage."""

    code = "table"


class TableNotFoundError(TableError):
    """There is no table at the base path."""

    code = "table_not_found"
    status = 404


class UnsupportedTableError(TableError):
    """The table's version, type or a feature of it isn't supported."""

    code = "unsupported_table"
    status = 422


class CorruptMetadataError(TableError):
    """A metadata file can't be read; the message names the file."""

    code = "corrupt_metadata"


class StorageError(StrandlineError):
    """A call to the file system failed."""

    code = "storage"


class StorageUnavailableError(StorageError):
    """The file system couldn't be reached, or refused the call."""

    code = "storage_unavailable"
    status = 503
    retryable = True


class CreateUnansweredError(StorageUnavailableError):
    """A remote storage didn't say whether it created a file, which may still appear."""

    code = "create_unanswered"


class FilesNotDeletedError(StorageUnavailableError):
    """Some files of many weren't deleted; all others were.

    Attributes:
        paths: Those that weren't.
    """

    code = "files_not_deleted"
    paths: frozenset[str] = frozenset()


class PathNotFoundError(StorageError):
    """A file doesn't exist."""

    code = "path_not_found"
    status = 404


class AlreadyExistsError(StorageError):
    """An exclusive create found the name taken."""

    code = "already_exists"
    status = 409


class TimelineError(StrandlineError):
    """An operation on the timeline failed."""

    code = "timeline"


class InstantNotFoundError(TimelineError):
    """The instant isn't on the timeline."""

    code = "instant_not_found"
    status = 404


class IllegalTransitionError(TimelineError):
    """An instant can't move from its state to the requested one."""

    code = "illegal_transition"
    status = 409


class ConcurrentWriteError(TimelineError):
    """Another writer was first; the write must be redone."""

    code = "concurrent_write"
    status = 409
    retryable = True


class LockError(TimelineError):
    """The lock of the table's writers wasn't acquired, couldn't be reached, or was lost."""

    code = "lock"
    status = 423
    retryable = True


class LeaseError(TimelineError):
    """A reader's lease wasn't granted, as a clean was first; or it expired or was revoked."""

    code = "lease"
    status = 409
    retryable = True


class WriteConflictError(ConcurrentWriteError):
    """Another writer changed the same file groups; the write was rolled back and must be redone."""

    code = "write_conflict"


class CommitOutcomeUnknownError(TimelineError):
    """The call that completes a commit failed, and storage doesn't show whether it took effect.

    Not retryable: if it did, inserting the rows again would duplicate them.

    Attributes:
        instant: Requested time of the commit; ``""`` if not known.
    """

    code = "commit_outcome_unknown"
    status = 500
    instant: str = ""


class StoreError(StrandlineError):
    """A view's own store can't be read or written; the table is unaffected."""

    code = "store"
    retryable = True


class StoreFullError(StoreError):
    """The store's disk is full; what was stored before can still be read."""

    code = "store_full"
    status = 507


class StoreUnavailableError(StoreError):
    """A store's database can't be reached, or doesn't answer; another server may be able to."""

    code = "store_unavailable"
    status = 503


class StoreLockedError(StoreError):
    """Another running process has the store open."""

    code = "store_locked"
    status = 503


class RecordLostError(StoreError):
    """A store's record of a table is damaged or incomplete; it is written again."""

    code = "record_lost"


class BlobLostError(StoreError):
    """A shared store was read, but a blob that its rows reference is missing or damaged."""

    code = "blob_lost"


class StoreBehindError(StoreError):
    """Another server has changed the shared store since this one read it."""

    code = "store_behind"
    status = 503


class FleetError(StrandlineError):
    """State that the servers of a fleet share can't be read or written."""

    code = "fleet"


class StateConflictError(FleetError):
    """A key of the state store isn't at the expected version; nothing was changed."""

    code = "state_conflict"
    status = 409
    retryable = True


class StateUnavailableError(FleetError):
    """The state store can't be reached; a write may or may not have been carried out."""

    code = "state_unavailable"
    status = 503
    retryable = True


class NoServerError(FleetError):
    """No server of the group that has a table answers, and this server doesn't serve it."""

    code = "no_server"
    status = 503
    retryable = True


class ViewError(StrandlineError):
    """A file-system view can't answer."""

    code = "view"


class ViewBehindError(ViewError):
    """The caller's timeline is neither kept nor derivable (HTTP 400 on Hudi's routes)."""

    code = "view_behind"
    status = 400
    retryable = True


class RootNotAllowedError(ViewError):
    """The base path lies outside the roots that the service may serve."""

    code = "root_not_allowed"
    status = 403


class ServiceError(StrandlineError):
    """A call to the timeline service failed; raised by its clients only."""

    code = "service"
    status = 502


class ServiceUnreachableError(ServiceError):
    """No connection to the service.

    Attributes:
        may_have_arrived: Whether the service may have received the request; false if it is certain
            that no connection was made for it.
    """

    code = "service_unreachable"
    retryable = True
    may_have_arrived: bool = True


class ServiceTimeoutError(ServiceError):
    """The service didn't answer in time."""

    code = "service_timeout"
    status = 504
    retryable = True


class ServiceBusyError(ServiceError):
    """The service is still computing the answer, or is overloaded, and says when to ask again.

    Attributes:
        retry_after_s: Seconds until the client should ask again.
    """

    code = "service_busy"
    status = 503
    retryable = True
    retry_after_s: float = 1.0


class RemoteFailureError(ServiceError):
    """The service answered with an error that has no separate class here.

    Attributes:
        answered: HTTP status of the answer; 0 if unknown.
    """

    code = "remote_failure"
    answered: int = 0


class BadAnswerError(ServiceError):
    """The service's answer is not what the route promises."""

    code = "bad_answer"
