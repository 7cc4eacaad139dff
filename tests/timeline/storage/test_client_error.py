"""Errors of object stores' clients say which option to look at, and which bucket isn't there."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from s3fs.errors import translate_boto_error

from strandline import Table
from timeline.errors import (
    BucketNotFoundError,
    ConfigError,
    PathNotFoundError,
    StorageUnavailableError,
    StrandlineError,
    TableNotFoundError,
)
from timeline.storage.client_error import mapped_client_errors
from timeline.storage.conditional_file import http_status
from timeline.storage.fsspec_storage import FsspecStorage


def answered(code: str, **more: str) -> OSError:
    """Return s3fs's error for an answer of S3."""
    error = {"Code": code, "Message": "S3's words", **more}
    found: OSError = translate_boto_error(ClientError({"Error": error}, "GetObject"))
    return found


def mapped(error: Exception, path: str = "b/t") -> StrandlineError:
    """Return what a client's error at a path becomes."""
    with pytest.raises(StrandlineError) as raised, mapped_client_errors(path):
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("code", "option"),
    [
        ("InvalidAccessKeyId", "option key, or AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", "option secret, or AWS_SECRET_ACCESS_KEY"),
        ("ExpiredToken", "option token, or AWS_SESSION_TOKEN"),
        ("AccessDenied", "policy"),
        ("403", "options key and secret"),
        ("PermanentRedirect", "region_name"),
    ],
)
def test_a_refused_key_names_the_option(code: str, option: str) -> None:
    error = mapped(answered(code))
    assert type(error) is StorageUnavailableError
    assert error.message == "b/t: S3's words"
    assert option in (error.hint or "")


def test_other_answers_keep_their_meaning() -> None:
    error = mapped(answered("NoSuchKey"))
    assert (type(error), str(error)) == (PathNotFoundError, "no file b/t")
    error = mapped(answered("NoSuchBucket", BucketName="arn:x/y"), "arn:x/y/t")
    assert (type(error), error.message) == (BucketNotFoundError, "there is no bucket arn:x/y")


def test_a_missing_file_on_azure_is_a_missing_path() -> None:
    """adlfs raises it from azure-core's error, whose ``response`` is an object."""

    class ResourceNotFoundError(Exception):
        """As azure-core's, of this name."""

        response = object()

    missing = FileNotFoundError("b/t")
    missing.__cause__ = ResourceNotFoundError("the blob doesn't exist")
    assert type(mapped(missing)) is PathNotFoundError
    assert http_status(missing) is None


def test_missing_credentials_are_told_with_what_to_do() -> None:
    class NoCredentialsError(Exception):
        """As botocore's, of this name."""

    assert str(mapped(NoCredentialsError("no"))).startswith("b/t: no (set AWS_ACCESS_KEY_ID and ")
    for other in (RuntimeError("no"), TypeError("no")):
        assert (type(mapped(other)), str(mapped(other))) == (StorageUnavailableError, "b/t: no")


@pytest.mark.property
@pytest.mark.s3
def test_a_missing_bucket_is_no_missing_table(s3) -> None:
    with pytest.raises(TableNotFoundError, match="there is no bucket nowhere"):
        Table("s3://nowhere/t", s3.options)
    with pytest.raises(BucketNotFoundError):
        s3.storage_at("s3://nowhere/t").read("x")


def test_an_unknown_option_is_named() -> None:
    storage = FsspecStorage("s3://b/t", {"endpoint": "http://x", "anon": True})
    with pytest.raises(ConfigError, match=r"takes no option endpoint .*endpoint_url"):
        storage.read("x")
