"""S3 for nodes, in the standard library: ranged reads, uploads and listings, signed with Signature Version 4."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

from trainwright.errors import UserError
from trainwright.train.data.credentials import Credentials, find_credentials

PART = 64 << 20  # bytes of one part of a multipart upload; S3 allows 10,000 parts
MAX_ATTEMPTS = 7  # with exponential backoff from 0.2 s, 25 s in all, as S3 asks of throttled clients
Response = tuple[int, dict[str, str], bytes]  # status, headers, content
RETRYABLE = {429, 500, 502, 503, 504}


class Bucket:
    """One bucket (and a prefix in it), addressed as s3://bucket/prefix."""

    def __init__(self, uri: str) -> None:
        if not uri.startswith("s3://") or not uri[5:].strip("/"):
            raise UserError(f"{uri!r} is not an S3 address", fix="s3://bucket/prefix")
        self.uri = uri.rstrip("/")
        self.bucket, _, prefix = self.uri[5:].partition("/")
        self.prefix = prefix + "/" if prefix else ""
        self.region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        # AWS uses virtual-hosted addresses; other servers are safest with the bucket in the path.
        self.base = "/" + self.bucket if endpoint else ""
        self.endpoint = urllib.parse.urlsplit(endpoint or f"https://{self.bucket}.s3.{self.region}.amazonaws.com")
        self._credentials: Credentials | None = None

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Bytes start..end of an object (all of it by default)."""
        headers = {} if start == 0 and end is None else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        return self._request("GET", self.prefix + name, headers=headers)[1]

    def size(self, name: str) -> int | None:
        """The size of an object; None where there is none."""
        try:
            headers, _ = self._request("HEAD", self.prefix + name)
        except FileNotFoundError:
            return None
        return int(headers["content-length"])

    def names(self, under: str = "") -> Iterator[str]:
        """The names of all objects under a prefix, relative to this bucket's."""
        return (name for name, _ in self.sizes(under))

    def sizes(self, under: str = "") -> Iterator[tuple[str, int]]:
        """The same with the size of each."""
        return ((name, size) for name, size, _ in self.objects(under))

    def objects(self, under: str = "") -> Iterator[tuple[str, int, str]]:
        """Name, size and ETag of each; one request per thousand objects."""
        token = ""
        while True:
            query = {"list-type": "2", "prefix": self.prefix + under}
            if token:
                query["continuation-token"] = token
            root = ElementTree.fromstring(self._request("GET", "", query)[1])
            space = root.tag.partition("}")[0] + "}" if "}" in root.tag else ""
            for item in root.iter(f"{space}Contents"):
                name = (item.findtext(f"{space}Key") or "").removeprefix(self.prefix)
                yield name, int(item.findtext(f"{space}Size") or 0), item.findtext(f"{space}ETag") or ""
            token = root.findtext(f"{space}NextContinuationToken") or ""
            if not token:
                return

    def write(self, name: str, content: bytes) -> None:
        """Write a small object."""
        self._request("PUT", self.prefix + name, body=content)

    def upload(self, name: str, path: Path) -> None:
        """Write a file of any size; a large one is uploaded in parts and appears when the last has arrived."""
        size = path.stat().st_size
        with path.open("rb") as handle:
            if size <= PART:
                return self.write(name, handle.read())
            key = self.prefix + name
            root = ElementTree.fromstring(self._request("POST", key, {"uploads": ""})[1])
            upload = next(e.text or "" for e in root.iter() if e.tag.endswith("UploadId"))
            done = ElementTree.Element("CompleteMultipartUpload")
            for number in range(1, -(-size // PART) + 1):
                query = {"partNumber": str(number), "uploadId": upload}
                headers, _ = self._request("PUT", key, query, body=handle.read(PART))
                part = ElementTree.SubElement(done, "Part")
                ElementTree.SubElement(part, "PartNumber").text = str(number)
                ElementTree.SubElement(part, "ETag").text = headers["etag"]
            _, answer = self._request("POST", key, {"uploadId": upload}, body=ElementTree.tostring(done))
            if ElementTree.fromstring(answer).tag.endswith("Error"):  # S3 may report an error after status 200
                raise self._error(200, answer, key)
        return None

    def delete(self, name: str) -> None:
        self._request("DELETE", self.prefix + name)

    def _request(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, str], bytes]:
        path = urllib.parse.quote(f"{self.base}/{key}", safe="/-_.~")
        for attempt in range(MAX_ATTEMPTS):
            try:
                status, answer, content = self._once(method, path, dict(query or {}), body, dict(headers or {}))
            except (OSError, http.client.HTTPException) as error:
                if attempt == MAX_ATTEMPTS - 1:
                    raise UserError(
                        f"no answer from S3: {error}", where=self._name(key), fix="check network and endpoint"
                    ) from error
            else:
                if status < 300:
                    return answer, content
                if status not in RETRYABLE or attempt == MAX_ATTEMPTS - 1:
                    raise self._error(status, content, key)
            time.sleep(0.2 * 2**attempt)
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]) -> Response:
        secure = self.endpoint.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self.endpoint.hostname or "", self.endpoint.port, timeout=60)
        try:
            words = "&".join(f"{quoted(k)}={quoted(v)}" for k, v in sorted(query.items()))
            signed = self._sign(method, path, words, body, headers)
            connection.request(method, path + ("?" + words if words else ""), body=body or None, headers=signed)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def _sign(self, method: str, path: str, query: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
        """The headers of a request with its signature, as AWS documents it (Signature Version 4, single chunk)."""
        if self._credentials is None or not self._credentials.fresh:
            self._credentials = find_credentials()
        credentials = self._credentials
        now = datetime.now(timezone.utc)  # noqa: UP017 (images with Python 3.10 fetch the code of a run with this file)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"Host": self.endpoint.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp, **headers}
        if credentials.token:
            headers["x-amz-security-token"] = credentials.token
        lower = sorted((k.lower(), v.strip()) for k, v in headers.items())
        names = ";".join(k for k, _ in lower)
        canonical = "\n".join([method, path, query, *(f"{k}:{v}" for k, v in lower), "", names, digest])
        scope = f"{day}/{self.region}/s3/aws4_request"
        to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = f"AWS4{credentials.secret}".encode()
        for word in (day, self.region, "s3", "aws4_request"):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credentials.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return headers

    def _error(self, status: int, content: bytes, key: str) -> Exception:
        if status == 404 and b"NoSuchBucket" in content:
            return UserError(f"no bucket {self.bucket!r}", where=self.uri, fix="check its name, or create it")
        if status == 404:
            return FileNotFoundError(self._name(key))
        try:
            words = [e.text or "" for e in ElementTree.fromstring(content).iter()]
        except ElementTree.ParseError:
            words = [content[:200].decode(errors="replace")]
        reason = " ".join(w.strip() for w in words[:3] if w.strip())
        fix = "check the node's role and the bucket's policy and region" if status in (301, 400, 403) else ""
        return UserError(f"S3 answered {status} {reason}", where=self._name(key), fix=fix)

    def _name(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"


def quoted(word: str) -> str:
    return urllib.parse.quote(word, safe="-_.~")
