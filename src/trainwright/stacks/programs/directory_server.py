"""Makes this machine an LDAP server that holds exactly the users it is given: TLS only, keys instead of passwords, read
by one account. Nothing is kept beside what the stack says: its certificate authority is in a secret of the stack, so
nodes trust the machine that replaces this one. Safe to run again: it runs once a day, and whenever the users change.
The stack `directory` carries this file as it is."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HOME = Path(os.environ.get("DIRECTORY_HOME", "/etc/ldap/trainwright"))
DATA = Path(os.environ.get("DIRECTORY_DATA", "/var/lib/ldap"))
RUN = Path(os.environ.get("DIRECTORY_RUN", "/run/slapd"))
SYSTEM_SCHEMAS = Path("/etc/ldap/schema")
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
CA_DAYS, SERVER_DAYS, RENEW_SECONDS = 3650, 397, 60 * 86400
SLAPD = """include {schemas}/core.schema
include {schemas}/cosine.schema
include {schemas}/nis.schema
include {schemas}/inetorgperson.schema
include {home}/openssh-lpk.schema
pidfile {run}/slapd.pid
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile {home}/ca.pem
TLSCertificateFile {home}/server.pem
TLSCertificateKeyFile {home}/server.key
TLSProtocolMin 3.3
security ssf=128
disallow bind_anon
require authc
loglevel stats
database mdb
suffix "{base}"
directory {data}
maxsize 1073741824
index uid,uidNumber,gidNumber,memberUid eq
index objectClass eq
readonly on
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,{base}" read by * none
"""
# What sshd asks for: a user's public keys.
SCHEMA = """attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey'
  EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY MAY ( sshPublicKey $ uid ) )
"""


def entry(dn: str, attributes: dict[str, Any]) -> str:
    """One entry in LDIF. Every value is encoded, so that none can begin another line."""
    lines = [f"dn:: {encoded(dn)}"]
    for name, values in attributes.items():
        lines += [f"{name}:: {encoded(value)}" for value in (values if isinstance(values, list) else [values])]
    return "\n".join(lines) + "\n\n"


def encoded(value: object) -> str:
    return base64.b64encode(str(value).encode()).decode()


def entries(base: str, users: dict[str, Any], password: str) -> str:
    """The whole directory."""
    domain = base.split(",")[0].split("=")[1]
    text = entry(base, {"objectClass": ["top", "dcObject", "organization"], "dc": domain, "o": domain})
    reader = {"objectClass": ["applicationProcess", "simpleSecurityObject"], "cn": "reader", "userPassword": password}
    text += entry(f"cn=reader,{base}", reader)
    for unit in ("people", "groups"):
        text += entry(f"ou={unit},{base}", {"objectClass": "organizationalUnit", "ou": unit})
    for name, user in sorted(users.items()):
        person = {
            "objectClass": ["account", "posixAccount", "ldapPublicKey"], "uid": name, "cn": name,
            "uidNumber": user["uid"], "gidNumber": user["uid"], "homeDirectory": f"/home/{name}",
            "loginShell": "/bin/bash", "sshPublicKey": list(user["keys"]),
        }  # fmt: skip
        text += entry(f"uid={name},ou=people,{base}", person)
        group = {"objectClass": "posixGroup", "cn": name, "gidNumber": user["uid"], "memberUid": name}
        text += entry(f"cn={name},ou=groups,{base}", group)
    return text


def run(*words: str, **options: Any) -> str:
    """A program's output; what it complained about where it fails."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, **options)
    if done.returncode:
        raise SystemExit(f"{words[0]} failed: {done.stderr.strip()}")
    return str(done.stdout)


def write(path: Path, text: str, mode: int = 0o644) -> bool:
    """Write a file whole; True where that changed it."""
    if path.exists() and path.read_text() == text:
        return False
    new = path.with_name(path.name + ".new")
    new.touch(mode=mode)
    new.chmod(mode)
    new.write_text(text)
    new.replace(path)
    return True


def authority(secrets: Any, name: str) -> dict[str, str]:
    """The certificate authority of the stack, with its key: made by the first server, kept for the next ones."""
    try:
        return dict(json.loads(secrets.get_secret_value(SecretId=name)["SecretString"]))
    except secrets.exceptions.ResourceNotFoundException:  # the stack makes the secret without a value
        pass
    certificate, key = HOME / "ca.pem", HOME / "ca.key"
    if not (certificate.exists() and key.exists()):
        run("openssl", "req", "-x509", *NEW_KEY, "-days", str(CA_DAYS), "-subj",
            "/CN=Trainwright directory", "-keyout", str(key), "-out", str(certificate))  # fmt: skip
    made = {"certificate": certificate.read_text(), "key": key.read_text()}
    secrets.put_secret_value(SecretId=name, SecretString=json.dumps(made))
    return made


def certificates(name: str, ca: dict[str, str]) -> bool:
    """A certificate for the server's name from the stack's authority; renewed before it ends."""
    authority_file, authority_key = HOME / "ca.pem", HOME / "ca.key"
    server, server_key, marker = HOME / "server.pem", HOME / "server.key", HOME / "server.for"
    write(authority_file, ca["certificate"])
    write(authority_key, ca["key"], 0o600)
    extension = f"subjectAltName=DNS:{name}"
    wanted = f"{extension} {hashlib.sha256(ca['certificate'].encode()).hexdigest()}"
    fresh = server.exists() and marker.exists() and marker.read_text() == wanted
    ends = ["openssl", "x509", "-checkend", str(RENEW_SECONDS), "-noout", "-in", str(server)]
    if fresh and subprocess.run(ends, check=False, capture_output=True).returncode == 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        request, extensions = Path(folder, "request"), Path(folder, "extensions")
        extensions.write_text(extension)
        run("openssl", "req", *NEW_KEY, "-subj", "/CN=directory", "-keyout", str(server_key), "-out", str(request))
        run("openssl", "x509", "-req", "-in", str(request), "-CA", str(authority_file), "-CAkey", str(authority_key),
            "-CAcreateserial", "-days", str(SERVER_DAYS), "-extfile", str(extensions), "-out", str(server))  # fmt: skip
    marker.write_text(wanted)
    return True


def database(base: str, users: dict[str, Any], password: str) -> Path:
    """The folder of a database that holds these users, made aside; named after its content."""
    digest = hashlib.sha256(json.dumps([base, users, password], sort_keys=True).encode()).hexdigest()[:16]
    folder = DATA / f"trainwright-{digest}"
    if not folder.is_dir():
        new = DATA / f"trainwright-{digest}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True, mode=0o700)
        hashed = run("slappasswd", "-n", "-T", "/dev/stdin", input=password)
        config = HOME / "slapadd.conf"
        write(config, settings(base, new), 0o600)
        run("slapadd", "-f", str(config), "-l", "/dev/stdin", input=entries(base, users, hashed))
        for path in (new, *new.iterdir()):
            shutil.chown(path, "openldap", "openldap")
        new.rename(folder)
    return folder


def settings(base: str, folder: Path) -> str:
    return SLAPD.format(schemas=SYSTEM_SCHEMAS, home=HOME, run=RUN, data=folder, base=base)


def serve(base: str, users: dict[str, Any], password: str, name: str, ca: dict[str, str]) -> bool:
    """Everything on this machine but the daemon; True where it must be started again."""
    renewed = certificates(name, ca)
    write(HOME / "openssh-lpk.schema", SCHEMA)
    folder = database(base, users, password)
    changed = write(HOME / "slapd.conf", settings(base, folder), 0o640)
    for path in (HOME, *HOME.iterdir()):
        shutil.chown(path, "root", "openldap")
    for key in HOME.glob("*.key"):
        key.chmod(0o640 if key.name == "server.key" else 0o600)
    for old in DATA.glob("trainwright-*"):
        if old != folder:
            shutil.rmtree(old)
    return changed or renewed


def main() -> None:
    import boto3

    base, name = os.environ["DIRECTORY_BASE"], os.environ["DIRECTORY_NAME"]
    users = json.loads(os.environ["DIRECTORY_USERS"])
    region = os.environ["DIRECTORY_REGION"]
    HOME.mkdir(parents=True, exist_ok=True)
    HOME.chmod(0o750)
    secrets = boto3.client("secretsmanager", region_name=region)
    password = secrets.get_secret_value(SecretId=os.environ["DIRECTORY_SECRET"])["SecretString"]
    ca = authority(secrets, os.environ["DIRECTORY_AUTHORITY"])
    changed = serve(base, users, password, name, ca)
    defaults = f"SLAPD_CONF={HOME}/slapd.conf\nSLAPD_USER=openldap\nSLAPD_GROUP=openldap\nSLAPD_SERVICES=ldaps:///\n"
    changed = write(Path("/etc/default/slapd"), defaults) or changed
    run("systemctl", "restart" if changed else "start", "slapd")
    boto3.client("s3", region_name=region).put_object(
        Bucket=os.environ["DIRECTORY_BUCKET"], Key=os.environ["DIRECTORY_CA"], Body=ca["certificate"].encode()
    )
    print(f"{len(users)} users of {base} at ldaps://{name}")


if __name__ == "__main__":
    main()
