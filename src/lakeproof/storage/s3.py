"""Storage in an S3 bucket, of MinIO or any other server."""

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cachetools import TTLCache, cached

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.settings import S3Settings
from lakeproof.storage.base import StoredFile
from lakeproof.storage.errors import FileAbsentError, FileChangedError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectRequestTypeDef

_OF_A_STREAM = "for the bucket of a stream, LAKE_SOURCE_"
_ENDPOINT = f"AWS_ENDPOINT_URL ({_OF_A_STREAM}ENDPOINT_URL, or endpointUrl in its contract)"
_HINTS = {
    "NoSuchBucket": "Create the bucket, or use another one.",
    "InvalidAccessKeyId": f"Check AWS_ACCESS_KEY_ID ({_OF_A_STREAM}ACCESS_KEY_ID).",
    "SignatureDoesNotMatch": f"Check AWS_SECRET_ACCESS_KEY ({_OF_A_STREAM}SECRET_ACCESS_KEY).",
    "ExpiredToken": "Renew the keys and AWS_SESSION_TOKEN, or leave them unset for keys that the AWS tools renew.",
    "RequestTimeTooSkewed": "Set the clock of the machine; on a cluster, it may be that of an executor.",
    "AccessDenied": "Allow this key to list and read the bucket, and to write to it if the lake is there.",
    "403": "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that this key has access to the bucket.",
    "404": "Create the bucket, or use another one.",
    "ProfileNotFound": "Check AWS_PROFILE, and the files of AWS in which it is defined.",
    "NoCredentialsError": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
}

# The value may be a secret with a line break.
_REFUSED_HEADER = re.compile(r"(Invalid header value).*", re.DOTALL)

# Metadata by which a put that is repeated after a lost answer recognizes its own object.
_PUT_ID = "lakeproof-put-id"


def connect(root: str, s3: S3Settings) -> "S3Storage":
    """Open ``s3://bucket/prefix``."""
    parts = urlsplit(root)
    return S3Storage(s3_client(s3), parts.netloc, parts.path.strip("/"))


def check_bucket(uri: str, s3: S3Settings) -> None:
    """Check that the bucket of `uri` exists, and can be listed below the prefix of `uri`."""
    bucket, prefix = urlsplit(uri).netloc, urlsplit(uri).path.strip("/")
    with _asking(f"Cannot use the bucket {bucket}"):  # a key may be allowed to list only a prefix
        s3_client(s3).list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/" if prefix else "", MaxKeys=1)


def remove_prefix(root: str, s3: S3Settings) -> int:
    """Remove every object below ``s3://bucket/prefix``; return their number."""
    bucket, prefix = urlsplit(root).netloc, urlsplit(root).path.strip("/") + "/"
    client = s3_client(s3)
    removed = 0
    with _asking(f"Cannot remove {root}"):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            found = [{"Key": item["Key"]} for item in page.get("Contents", ())]
            if found:
                answer = client.delete_objects(Bucket=bucket, Delete={"Objects": found, "Quiet": True})  # type: ignore[typeddict-item]
                if errors := answer.get("Errors"):  # with status 200
                    first = errors[0]
                    raise UnavailableError(
                        f"Cannot remove s3://{bucket}/{first.get('Key', '')}: {first.get('Message', '')}.",
                        _HINTS.get(first.get("Code", ""), "Allow this key to delete objects of the bucket."),
                    )
            removed += len(found)
    return removed


# Every data file needs a client. Clients are renewed from time to time to pick up changed credentials.
@cached(TTLCache(8, ttl=60), key=lambda s3: (os.getpid(), s3), lock=Lock())
def s3_client(s3: S3Settings) -> "S3Client":
    """Return a cached client for the settings; botocore does retries and pooling."""
    import boto3
    from botocore.config import Config

    def secret(value: Any) -> str | None:
        return value.get_secret_value() if value else None

    try:
        with _asking("Cannot use S3"):
            return boto3.client(
                "s3",
                endpoint_url=s3.endpoint_url,
                aws_access_key_id=s3.access_key_id,
                aws_secret_access_key=secret(s3.secret_access_key),
                aws_session_token=secret(s3.session_token),
                region_name=s3.region,
                config=Config(
                    retries={"mode": "standard", "max_attempts": 5},
                    s3={"addressing_style": "path" if s3.endpoint_url else "auto"},
                ),
            )
    except ValueError:
        raise UsageError(
            f"The host of the S3 endpoint {s3.endpoint_url} is not valid.",
            f"Use letters, digits and hyphens, as in http://minio-1:9000. Check {_ENDPOINT}.",
        ) from None


class S3Storage:
    """See :class:`lakeproof.storage.base.Storage`."""

    shows_whole_files = True

    def __init__(self, client: "S3Client", bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def list(self) -> Iterator[StoredFile]:
        """List the objects below the prefix in the order of their keys."""
        return self._list("")

    def list_recent(self, after: str | None) -> Iterator[StoredFile]:
        """List the objects whose keys sort after `after`."""
        return self._list(self._key(after or ""))

    def names(self, folder: str) -> Iterator[str]:
        """List the names in one folder; see the protocol."""
        prefix = f"{self._key(folder)}/"
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix, Delimiter="/"
        )
        with _asking(f"Cannot list {folder}/"):
            for page in pages:
                # The prefix itself may be there, as a marker of an empty folder.
                yield from filter(None, (item["Key"].removeprefix(prefix) for item in page.get("Contents", ())))

    def stat(self, uri: str) -> StoredFile | None:
        """Look at one object; see the protocol."""
        try:
            with _asking(f"Cannot read the metadata of {uri}", absent=FileAbsentError(uri)):
                head = self._client.head_object(Bucket=self._bucket, Key=self._key(uri))
        except FileAbsentError:
            return None
        return StoredFile(uri, head["ContentLength"], _tag_of(head, uri), head["LastModified"])

    def _list(self, start_after: str) -> Iterator[StoredFile]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, StartAfter=start_after
        )
        with _asking(f"Cannot list s3://{self._bucket}/{self._prefix}"):
            for page in pages:
                for item in page.get("Contents", ()):
                    if not item["Key"].endswith("/"):  # a marker of an empty folder
                        yield StoredFile(
                            uri=f"s3://{self._bucket}/{item['Key']}",
                            size=item["Size"],
                            etag=item["ETag"].strip('"'),
                            modified_at=item["LastModified"],
                        )

    def read(self, uri: str, etag: str | None = None) -> bytes:
        """Read an object; see the protocol."""
        wanted: GetObjectRequestTypeDef = {"Bucket": self._bucket, "Key": self._key(uri)}
        if etag:
            wanted["IfMatch"] = f'"{etag}"'
        changed = FileChangedError(uri, "it was overwritten")
        with _asking(f"Cannot read {uri}", absent=FileAbsentError(uri), changed=changed):
            answer = self._client.get_object(**wanted)
            if etag and _tag_of(answer, uri) != etag:  # a server that ignores the condition
                raise changed
            return answer["Body"].read()

    def now(self) -> datetime:
        """Return the time of the server, in whole seconds."""
        with _asking(f"Cannot list s3://{self._bucket}/{self._prefix}"):
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])

    def write_new(self, uri: str, data: bytes) -> None:
        """Put an object if its key does not exist."""
        mark = {_PUT_ID: uuid.uuid4().hex}
        key = self._key(uri)
        with _asking(f"Cannot write {uri}"):
            try:
                with _asking(f"Cannot write {uri}", changed=FileExistsError(uri)):
                    self._client.put_object(Bucket=self._bucket, Key=key, Body=data, IfNoneMatch="*", Metadata=mark)
            except FileExistsError:
                # A put that is repeated after a lost answer finds its own object.
                if self._client.head_object(Bucket=self._bucket, Key=key)["Metadata"] != mark:
                    raise

    def replace(self, uri: str, data: bytes) -> None:
        """Put an object; see the protocol."""
        with _asking(f"Cannot write {uri}"):
            self._client.put_object(Bucket=self._bucket, Key=self._key(uri), Body=data)

    def remove(self, uri: str) -> None:
        """Delete an object; see the protocol."""
        with _asking(f"Cannot remove {uri}"):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(uri))

    def _key(self, uri: str) -> str:
        return uri.removeprefix(f"s3://{self._bucket}/")


def _tag_of(answer: Mapping[str, Any], uri: str) -> str:
    """Return the tag in an answer about an object; a page of a proxy with status 200 has none."""
    if "ETag" not in answer:
        raise UnavailableError(f"The answer for {uri} is not from S3: it has no tag.", f"Check {_ENDPOINT}.")
    return str(answer["ETag"]).strip('"')


@contextmanager
def _asking(what: str, absent: Exception | None = None, changed: Exception | None = None) -> Iterator[None]:
    """Convert botocore's errors: `absent` for a missing object, `changed` for a failed condition, or another error.

    `what` begins the message of other errors.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        # Connection errors have no response, or None.
        response: dict[str, Any] = getattr(error, "response", None) or {}
        code = str(response.get("Error", {}).get("Code", ""))
        if absent and code in ("404", "NoSuchKey"):
            raise absent from None
        if changed and code in ("412", "PreconditionFailed"):
            raise changed from None
        hint = f"Check {_ENDPOINT}, and that the server is running."
        text = _REFUSED_HEADER.sub(r"\1", str(error))
        raise UnavailableError(f"{what}: {text}.", _HINTS.get(code or type(error).__name__, hint)) from error
