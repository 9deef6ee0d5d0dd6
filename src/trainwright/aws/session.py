"""Access to AWS: boto3 is imported here, when a verb really calls AWS; its errors become three-part messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainwright.errors import UserError


def client(service: str, region: str | None = None, profile: str | None = None) -> Any:
    """A boto3 client; the region and the credentials are found as by every AWS tool."""
    boto3 = _boto3()
    with aws_errors(f"{service} client"):
        return boto3.Session(profile_name=profile, region_name=region).client(service)


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
        raise UserError(f"AWS could not be reached: {error}", where=where, fix="check the network and retry") from error


def _refused(error: Any, where: str) -> UserError:
    details = error.response.get("Error", {})
    code, message = details.get("Code", "Unknown"), details.get("Message", str(error))
    if "Expired" in code or code in ("AuthFailure", "UnrecognizedClientException", "InvalidClientTokenId"):
        fix = "log in again: `aws sso login` or new keys"
    elif "AccessDenied" in code or code == "UnauthorizedOperation":
        fix = f"ask for permission to call {error.operation_name}"
    else:
        fix = "see the message of AWS above"
    return UserError(f"{error.operation_name} was refused ({code}): {message}", where=where, fix=fix)


def _boto3() -> Any:
    try:
        import boto3
    except ModuleNotFoundError as error:
        raise UserError(
            "this needs boto3, the AWS library, which is not installed", fix="pip install trainwright[aws]"
        ) from error
    return boto3
