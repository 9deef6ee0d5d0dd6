"""Archives of code in S3, for clusters whose nodes do not see the files of this machine. Nodes fetch one by an address
that holds for a while and needs no credentials, or sign the request with a role of their own."""

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

    def put(self, run: str, archive: bytes) -> None:
        """Store the archive of a run, encrypted as the bucket's own settings say."""
        with aws_errors(self.uri(run)):
            self._client.put_object(**self._at(run), Body=archive)

    def uri(self, run: str) -> str:
        return f"{self.place}/{run}.tar.gz"

    def address(self, run: str) -> str:
        """An address that anybody may fetch the archive from: a secret."""
        with aws_errors(self.uri(run)):
            return str(self._client.generate_presigned_url("get_object", Params=self._at(run), ExpiresIn=VALID))

    def remove(self, run: str) -> None:
        with aws_errors(self.uri(run)):
            self._client.delete_object(**self._at(run))

    @property
    def bucket_region(self) -> str:
        return str(self._client.meta.region_name or "")

    def _at(self, run: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self.uri(run).removeprefix(f"s3://{self._bucket}/")}

    @property
    def _bucket(self) -> str:
        return self.place.removeprefix("s3://").partition("/")[0]

    @cached_property
    def _client(self) -> Any:
        """An address is signed for one region, so it has to be the bucket's."""
        account = Account(self.region)
        with aws_errors(f"bucket {self._bucket}"):
            answer: Any = account.client("s3").head_bucket(Bucket=self._bucket)
        region = answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", self.region)
        return (account if region == self.region else Account(region)).client("s3", "s3v4")
