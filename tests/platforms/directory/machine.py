"""The inner machine of the test beside it, with stand-ins of systemd and of the AWS command line. Everything else is
real: the LDAP server, sssd, sshd, Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from inner_machine import private, programs, shell, until

WORK = Path(sys.argv[1])
PLAN = json.loads((WORK / "plan.json").read_text())

SYSTEMCTL = """#!/bin/bash
echo "$*" >> WORK/systemctl.log
case "$*" in
  "start slapd" | "restart slapd")
    . /etc/default/slapd
    if [ -e /run/slapd/slapd.pid ]; then kill "$(cat /run/slapd/slapd.pid)"; fi
    while [ -e /run/slapd/slapd.pid ]; do sleep 0.05; done
    slapd -f "$SLAPD_CONF" -u "$SLAPD_USER" -g "$SLAPD_GROUP" -h "$SLAPD_SERVICES" ;;
  "restart sssd") sssd -D ;;
  "reload ssh") kill -HUP "$(cat /run/sshd.pid)" ;;
esac
"""
AWS = """#!PYTHON
import sys, boto3
words = sys.argv[1:]
if words[:2] == ["s3", "cp"]:
    bucket, _, key = words[-2].removeprefix("s3://").partition("/")
    boto3.client("s3", region_name="us-east-1").download_file(bucket, key, words[-1])
else:
    name = words[words.index("--secret-id") + 1]
    print(boto3.client("secretsmanager", region_name="us-east-1").get_secret_value(SecretId=name)["SecretString"])
"""


def furnish() -> None:
    """Private copies of every folder that the scripts write to."""
    private(WORK, ["/var/lib/sss", "/var/lib/ldap", "/run", "/home"])
    for folder in ("db", "pipes/private", "mc", "pubconf", "gpo_cache", "keytabs", "secrets"):
        Path("/var/lib/sss", folder).mkdir(parents=True)
    shell("mkdir -p /run/sshd /run/slapd /var/log/sssd && chown openldap: /run/slapd && chmod 755 /var/lib/ldap")
    shell("rm -rf /etc/sssd/sssd.conf /etc/ldap/trainwright; sed -i 's/ *\\bsss\\b//' /etc/nsswitch.conf")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    aws = AWS.replace("PYTHON", sys.executable)
    programs(WORK, {"systemctl": SYSTEMCTL.replace("WORK", str(WORK)), "aws": aws})


def cloud() -> None:
    """Secrets Manager and S3, as moto has them."""
    from moto.server import ThreadedMotoServer

    ThreadedMotoServer(ip_address="127.0.0.1", port=5999, verbose=False).start()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": "http://127.0.0.1:5999"}
    os.environ |= keys
    import boto3

    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="scripts")
    secrets = boto3.client("secretsmanager", region_name="us-east-1")
    secrets.create_secret(Name="reader", SecretString="pass'word $x")
    secrets.create_secret(Name="authority")
    point_name_to("127.0.0.1")


def point_name_to(address: str) -> None:
    """The record that the stack keeps in the VPC's DNS."""
    lines = [line for line in Path("/etc/hosts").read_text().splitlines() if PLAN["name"] not in line]
    Path("/etc/hosts").write_text("\n".join([*lines, f"{address} {PLAN['name']}", ""]))


def replace_server() -> None:
    """Another machine in the place of the server: none of its files are left, and its address is another one."""
    shell("kill $(cat /run/slapd/slapd.pid); while [ -e /run/slapd/slapd.pid ]; do sleep 0.05; done")
    shell("rm -r /etc/ldap/trainwright /var/lib/ldap/trainwright-* /etc/default/slapd")
    point_name_to("127.0.0.2")


def main() -> None:
    saw: dict[str, object] = {}
    furnish()
    cloud()
    shell(PLAN["server"])
    saw["plain"] = subprocess.call(["bash", "-c", "ldapsearch -x -H ldap://127.0.0.1 -b '' 2>/dev/null >&2"])
    search = "LDAPTLS_CACERT=/etc/ldap/trainwright/ca.pem ldapsearch -x -H ldaps://NAME -b dc=demo,dc=internal"
    search = search.replace("NAME", PLAN["name"])
    saw["anonymous"] = subprocess.run(["bash", "-c", search], capture_output=True, text=True).stdout
    shell("/usr/sbin/sshd -o PidFile=/run/sshd.pid -o ListenAddress=127.0.0.1 -o UsePAM=yes")
    shell(PLAN["join"])
    saw["passwd"] = until("getent passwd ada")
    saw["group"] = until("getent group ada")
    ssh = (
        f"ssh -i {WORK}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes ada@127.0.0.1"
    )
    saw["ssh"] = until(f"{ssh} 'id -un; pwd'")
    before = (WORK / "systemctl.log").read_text()
    shell(PLAN["join"])
    shell(PLAN["server"])
    saw["again"] = (WORK / "systemctl.log").read_text().removeprefix(before)
    saw["slurm"] = slurm()
    replace_server()
    shell(PLAN["server_later"])
    # While the server starts again sssd is offline, for a minute as it comes: the test does not wait for that.
    shell("pkill -x sssd; while pgrep -x sssd; do sleep 0.05; done; rm -f /var/lib/sss/db/* /var/lib/sss/mc/*; sssd -D")
    saw["later"] = until("getent passwd grace")
    saw["gone"] = subprocess.call(["getent", "passwd", "ada"])
    print(json.dumps(saw))


def slurm() -> str:
    """A job of the LDAP user on a local cluster of ours."""
    command = [sys.executable, "-m", "trainwright"]
    subprocess.run([*command, "up", str(WORK / "cluster.yaml"), "--yes"], check=True, stdout=sys.stderr)
    try:
        job = ["connect", "directory-test", "--", "srun", "--uid=ada", "--chdir=/", "bash", "-c", "id -un; id -u"]
        return subprocess.run([*command, *job], capture_output=True, text=True, check=True).stdout
    finally:
        subprocess.run([*command, "down", "directory-test", "--yes"], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
