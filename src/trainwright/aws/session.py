"""Access to AWS: boto3 is imported here, when a verb really calls AWS; its errors become three-part messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainwright.errors import UserError

ATTEMPTS = 8  # of one call, with growing pauses, before an error of AWS is believed
BUSY = ("Throttling", "ThrottlingException", "RequestLimitExceeded", "SlowDown", "TooManyRequestsException")


class AwsUnreachable(UserError):
    """AWS did not answer, or answered that it cannot now: what was asked may have been done or not. Trying again is
    right."""

    status = 1


class AwsRefused(UserError):
    """AWS answered no; `code` is its word for why."""

    def __init__(self, code: str, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what, where=where, fix=fix)
        self.code = code


def client(service: str, region: str | None = None, profile: str | None = None) -> Any:
    """A boto3 client; the region and the credentials are found as by every AWS tool."""
    boto3 = _boto3()
    with aws_errors(f"{service} client"):
        return boto3.Session(profile_name=profile, region_name=region).client(service)


@dataclass
class Account:
    """One region of the account that the user's credentials open: clients made once, which try again by themselves
    where AWS is busy."""

    region: str  # empty: what the user's configuration says
    profile: str | None = None
    _clients: dict[str, Any] = field(default_factory=dict, repr=False)

    def client(self, service: str, signature: str = "") -> Any:
        """`signature`: another than the service's own default, such as s3v4 for addresses that hold for days."""
        key = f"{service} {signature}".strip()
        if key not in self._clients:
            self._clients[key] = self._session().client(service, config=self._config(signature))
        return self._clients[key]

    def identity(self) -> tuple[str, str]:
        """The account's number and who is calling."""
        with aws_errors("credentials"):
            answer = self.client("sts").get_caller_identity()
        return str(answer["Account"]), str(answer["Arn"])

    def _session(self) -> Any:
        if "" not in self._clients:
            with aws_errors("credentials"):
                self._clients[""] = _boto3().Session(profile_name=self.profile, region_name=self.region or None)
        return self._clients[""]

    def _config(self, signature: str = "") -> Any:
        from botocore.config import Config

        retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        return Config(
            retries=retries, connect_timeout=10, read_timeout=60, user_agent_extra="trainwright",
            signature_version=signature or None,
        )  # fmt: skip


@contextmanager
def aws_errors(where: str) -> Iterator[None]:
    """Turn what a user can fix (no credentials, no permission, no network) into a UserError."""
    from botocore import exceptions

    try:
        yield
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.TokenRetrievalError) as error:
        raise UserError(
            f"no AWS credentials: {error}",
            where=where,
            fix="run `aws configure` or `aws sso login`, or set AWS_PROFILE",
        ) from error
    except exceptions.ProfileNotFound as error:
        raise UserError(str(error), where=where, fix="`aws configure list-profiles` names the profiles") from error
    except exceptions.NoRegionError as error:
        raise UserError("no AWS region is chosen", where=where, fix="pass --region or set AWS_REGION") from error
    except exceptions.ClientError as error:
        raise _refused(error, where) from error
    except exceptions.BotoCoreError as error:
        fix = "check the network and retry"
        raise AwsUnreachable(f"AWS could not be reached: {error}", where=where, fix=fix) from error


def _refused(error: Any, where: str) -> UserError:
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "Unknown")), details.get("Message", str(error))
    what = f"{error.operation_name} was refused ({code}): {message}"
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in BUSY or status >= 500:
        return AwsUnreachable(what, where=where, fix="AWS is busy: retry in a few minutes")
    if code == "RequestTimeTooSkewed" or "Signature expired" in message or "not yet current" in message:
        fix = "this machine's clock is wrong: set it (`timedatectl set-ntp true`)"
    elif "Expired" in code or code in ("AuthFailure", "UnrecognizedClientException", "InvalidClientTokenId"):
        fix = "log in again: `aws sso login` or new keys"
    elif "AccessDenied" in code or code == "UnauthorizedOperation":
        fix = f"ask for permission to call {error.operation_name}"
    else:
        fix = "see the message of AWS above"
    return AwsRefused(code, what, where=where, fix=fix)


def _boto3() -> Any:
    try:
        import boto3
    except ModuleNotFoundError as error:
        raise UserError(
            "this needs boto3, the AWS library, which is not installed", fix="pip install trainwright[aws]"
        ) from error
    return boto3
