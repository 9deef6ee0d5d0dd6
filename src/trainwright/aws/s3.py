"""S3: the cluster's own bucket. A file that is there as it is to be is not uploaded again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.aws.session import Account, AwsRefused, aws_errors

MISSING = ("404", "NoSuchBucket", "NoSuchKey", "NoSuchVersion", "NotFound")


@dataclass(frozen=True)
class BucketApi:
    account: Account

    def exists(self, bucket: str) -> bool:
        try:
            with aws_errors(f"bucket {bucket}"):
                self._client.head_bucket(Bucket=bucket)
        except AwsRefused as error:
            if error.code in MISSING:
                return False
            raise
        return True

    def keys(self, bucket: str, prefix: str) -> dict[str, str]:
        """Key -> entity tag, which is the MD5 of what `put` put there."""
        with aws_errors(f"bucket {bucket}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return {row["Key"]: row["ETag"].strip('"') for page in pages for row in page.get("Contents", [])}

    def put(self, bucket: str, key: str, content: str | bytes) -> None:
        body = content.encode() if isinstance(content, str) else content
        with aws_errors(f"s3://{bucket}/{key}"):
            self._client.put_object(Bucket=bucket, Key=key, Body=body, ServerSideEncryption="AES256")

    def read(self, bucket: str, key: str, version: str = "") -> str | None:
        """An object's text, of one version or the newest; None where there is none."""
        which = {"VersionId": version} if version else {}
        try:
            with aws_errors(f"s3://{bucket}/{key}"):
                body: bytes = self._client.get_object(Bucket=bucket, Key=key, **which)["Body"].read()
        except AwsRefused as error:
            if error.code in MISSING:
                return None
            raise
        return body.decode()

    def remove(self, bucket: str) -> None:
        """Delete a bucket with every version of every object in it; nothing where it is gone already."""
        if not self.exists(bucket):
            return
        self.empty(bucket)
        with aws_errors(f"bucket {bucket}"):
            self._client.delete_bucket(Bucket=bucket)

    def empty(self, bucket: str, prefix: str = "", wanted: Callable[[str], bool] = lambda key: True) -> None:
        """Delete every version of the objects whose key starts with the prefix and is wanted."""
        with aws_errors(f"bucket {bucket}"):
            pages = self._client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
            for page in pages:
                rows = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                doomed = [{"Key": row["Key"], "VersionId": row["VersionId"]} for row in rows if wanted(row["Key"])]
                if doomed:
                    self._client.delete_objects(Bucket=bucket, Delete={"Objects": doomed, "Quiet": True})

    def upload(self, bucket: str, prefix: str, files: Mapping[str, bytes]) -> int:
        """Put the files (key -> content) that are not there yet as they are; how many that were."""
        there = self.keys(bucket, prefix)
        missing = {key: content for key, content in files.items() if there.get(key) != _tag(content)}
        for key, content in missing.items():
            self.put(bucket, key, content)
        return len(missing)

    @property
    def _client(self) -> Any:
        return self.account.client("s3")


def _tag(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
