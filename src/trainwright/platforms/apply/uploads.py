"""The step that puts what a plan's nodes fetch into the cluster's bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainwright.aws.s3 import BucketApi
from trainwright.platforms.apply.steps import Step


@dataclass
class Uploads(Step):
    """Put what this plan's nodes fetch into the bucket: boot scripts, and the files of the runtime."""

    buckets: BucketApi = field(kw_only=True)
    bucket: Callable[[], str] = field(kw_only=True)
    prefix: str = field(kw_only=True)
    files: Mapping[str, bytes] = field(kw_only=True)

    def advance(self) -> bool:
        count = self.buckets.upload(self.bucket(), self.prefix, self.files)
        self.now("ready", f"{count} uploaded" if count else "")
        return True
