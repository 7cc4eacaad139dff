"""Errors of object stores' clients, turned into Strandline's, with the option to look at.

s3fs turns an answer of S3 into a Python error whose cause is botocore's, with S3's code for it;
errors of botocore, aiohttp, gcsfs and google.auth have no common base class, and s3fs raises
botocore's unchanged if the store can't be reached.

``ReadFile`` is an open file whose errors are turned into these. pyarrow passes Python's errors on
unchanged, but also raises ``OSError`` for invalid content: without it a file deleted while it is
read would be indistinguishable from a damaged one.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from timeline.errors import (
    BucketNotFoundError,
    ConfigError,
    StorageUnavailableError,
    StrandlineError,
)
from timeline.storage.base import mapped_errors

_HINTS: Final[Mapping[str, str]] = {
    "NoCredentialsError": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source of"
    " credentials that botocore knows",
    "EndpointConnectionError": "check s3fs's option endpoint_url, or AWS_ENDPOINT_URL",
    "InvalidAccessKeyId": "the store doesn't know this key: check s3fs's option key, or"
    " AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret isn't that of the key: check s3fs's option secret, or"
    " AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "renew s3fs's option token, or AWS_SESSION_TOKEN",
    "InvalidToken": "check s3fs's option token, or AWS_SESSION_TOKEN",
    "AccessDenied": "the key's policy, or the bucket's, must allow it",
    # A HEAD request has no body, and so no code but its status.
    "403": "check s3fs's options key and secret, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY;"
    " the key's policy must allow it",
    "PermanentRedirect": "the bucket is in another region: set s3fs's option client_kwargs, such as"
    " {'region_name': 'eu-central-1'}, or AWS_DEFAULT_REGION",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set s3fs's option"
    " client_kwargs, such as {'region_name': 'eu-central-1'}, or AWS_DEFAULT_REGION",
}
"""S3's code, or the class of a client's error → what the reader can do about it."""

_UNKNOWN_OPTION: Final = re.compile(r"got an unexpected keyword argument '(\w+)'")


@contextmanager
def mapped_client_errors(full: str) -> Iterator[None]:
    """Turn all errors of an object store's client at a path into Strandline's.

    Raises:
        BucketNotFoundError: S3 says that the path's bucket doesn't exist.
        ConfigError: The client refuses an option, or an argument of the driver's.
        StorageUnavailableError: Any other error, with a hint if it is one of keys or addresses.
    """
    with mapped_errors(full):
        try:
            yield
        except StrandlineError:
            raise
        except OSError as exc:
            answer = _s3_answer(exc)
            code = str(answer.get("Code", ""))
            if code == "NoSuchBucket":
                bucket = answer.get("BucketName") or full.rpartition("://")[2].partition("/")[0]
                raise BucketNotFoundError(
                    f"there is no bucket {bucket}", hint="create it, or check the name"
                ) from exc
            if code not in _HINTS:
                raise
            message = f"{full}: {exc.strerror or exc}"
            raise StorageUnavailableError(message, hint=_HINTS[code]) from exc
        except Exception as exc:
            unknown = _UNKNOWN_OPTION.search(str(exc)) if isinstance(exc, TypeError) else None
            if unknown:
                raise ConfigError(
                    f"the driver of {full} takes no option {unknown[1]}",
                    hint="s3fs's are key, secret, token, profile, anon, endpoint_url,"
                    " client_kwargs and config_kwargs; if it isn't one of the storage options, the"
                    " releases of the driver and of its libraries don't fit",
                ) from exc
            message = f"{full}: {str(exc) or type(exc).__name__}"
            hint = _HINTS.get(type(exc).__name__)
            raise StorageUnavailableError(message, hint=hint) from exc


def _s3_answer(exc: OSError) -> Mapping[str, Any]:
    """Return the ``Error`` of S3's answer that led to an error; empty for other errors."""
    found = s3_response(exc).get("Error")
    return found if isinstance(found, Mapping) else {}


def s3_response(exc: OSError) -> Mapping[str, Any]:
    """Return S3's answer in botocore's error that led to an error; empty for other errors.

    Errors of other clients, such as Azure's, may have a ``response`` that is an object.
    """
    response = getattr(exc.__cause__, "response", None)
    return response if isinstance(response, Mapping) else {}


class ReadFile(io.RawIOBase):
    """A file of fsspec with random access, for ``pyarrow.PythonFile``.

    Reading raises:
        PathNotFoundError: The file is gone.
        StorageUnavailableError: The file system can't be reached, or refuses.
    """

    def __init__(self, file: Any, full: str) -> None:
        """Wrap a file.

        Args:
            file: The file, which is closed with this one.
            full: Its path in the file system, for messages.
        """
        self._file = file
        self._full = full

    @property
    def size(self) -> int:
        """Its size in bytes; only for files of object stores."""
        return int(self._file.size)

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position; return it."""
        with mapped_client_errors(self._full):
            return int(self._file.seek(offset, whence))

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; fewer only at the end of the file."""
        with mapped_client_errors(self._full):
            data: bytes = self._file.read(size)
            return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
