"""Archives of code in S3, for clusters whose nodes see neither this machine nor its files. Nodes get an address that
holds for a while and needs no credentials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainwright.aws.session import Account, aws_errors

VALID = 7 * 24 * 3600  # seconds; the longest that S3 allows


@dataclass(frozen=True)
class CodeStore:
    """One place in S3, s3://bucket/prefix."""

    place: str
    region: str = ""  # to begin with; the bucket itself may be in another

    def put(self, run: str, archive: bytes) -> str:
        """Store the archive of a run, and return the address to fetch it from. The address is a secret."""
        at = {"Bucket": self._bucket, "Key": self._key(run)}
        with aws_errors(f"{self.place}/{run}.tar.gz"):
            self._client.put_object(**at, Body=archive)  # encrypted as the bucket's own settings say
            address: str = self._client.generate_presigned_url("get_object", Params=at, ExpiresIn=VALID)
        return address

    def remove(self, run: str) -> None:
        with aws_errors(f"{self.place}/{run}.tar.gz"):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(run))

    @property
    def _bucket(self) -> str:
        return self.place.removeprefix("s3://").partition("/")[0]

    def _key(self, run: str) -> str:
        prefix = self.place.removeprefix("s3://").partition("/")[2]
        return f"{prefix}/{run}.tar.gz".lstrip("/")

    @cached_property
    def _client(self) -> Any:
        """An address is signed for one region, so it has to be the bucket's."""
        account = Account(self.region)
        with aws_errors(f"bucket {self._bucket}"):
            answer: Any = account.client("s3").head_bucket(Bucket=self._bucket)
        region = answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", self.region)
        return (account if region == self.region else Account(region)).client("s3", "s3v4")
