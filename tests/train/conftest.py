"""What the trainer's tests share."""

from __future__ import annotations

from s3_server import s3, s3_endpoint

__all__ = ["s3", "s3_endpoint"]
