"""A token for the API of an EKS cluster, as `aws eks get-token` makes it, without the AWS command line: a call of STS,
signed by the user's credentials, that the cluster makes to learn who is asking. A kubeconfig of ours runs this file."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from datetime import UTC, datetime, timedelta

from trainwright.aws.session import Account, aws_errors
from trainwright.errors import UserError

HEADER = "x-k8s-aws-id"
VALID = timedelta(minutes=14)  # the cluster takes a token for fifteen
SIGNED_SECONDS = 60


def token(cluster: str, region: str) -> str:
    """The signed address of STS's GetCallerIdentity, for this cluster alone."""
    client = Account(region).client("sts")

    def name_cluster(request: object, **_: object) -> None:
        request.headers[HEADER] = cluster  # type: ignore[attr-defined]

    client.meta.events.register("before-sign.sts.GetCallerIdentity", name_cluster)
    with aws_errors("credentials"):
        url = client.generate_presigned_url("get_caller_identity", ExpiresIn=SIGNED_SECONDS, HttpMethod="GET")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def credential(cluster: str, region: str) -> str:
    """What kubectl and Kubernetes clients read from such a program."""
    expires = (datetime.now(UTC) + VALID).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"expirationTimestamp": expires, "token": token(cluster, region)}
    kind = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1"}
    return json.dumps({**kind, "spec": {}, "status": status})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--region", required=True)
    asked = parser.parse_args()
    try:
        print(credential(asked.cluster, asked.region))
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
