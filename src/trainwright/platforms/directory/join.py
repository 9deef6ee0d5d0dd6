"""How the nodes of a cluster learn of the directory's users: by sssd, over TLS, as one reading account."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.shell_templates import shell_environment
from trainwright.spec.people import User

SCRIPTS = Path(__file__).parent / "scripts"
CA = "/etc/trainwright/directory-ca.pem"  # on the nodes, where the plan makes the directory
SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"  # of Ubuntu and Debian: certificates of public authorities


@dataclass(frozen=True, slots=True)
class DirectoryAccess:
    """Where a directory is and how it is read: real values, or outputs of the stack that makes it."""

    uri: str
    base: str
    reader: str
    secret: str
    ca: str
    ca_object: str = ""  # s3:// address that nodes fetch the certificate from; empty where they have it

    def sssd(self) -> dict[str, str]:
        """The domain section of sssd.conf, but for the password."""
        return {
            "id_provider": "ldap",
            "auth_provider": "ldap",
            "access_provider": "permit",
            "ldap_uri": self.uri,
            "ldap_search_base": self.base,
            "ldap_default_bind_dn": self.reader,
            "ldap_default_authtok_type": "password",
            "ldap_tls_cacert": self.ca,
            "ldap_tls_reqcert": "hard",
            **UNIX,
        }


# The directory keeps Unix accounts with their numbers, not Windows accounts whose numbers are computed.
UNIX = {
    "ldap_schema": "rfc2307",
    "ldap_id_mapping": "False",
    "ldap_user_ssh_public_key": "sshPublicKey",
    "cache_credentials": "True",
    "default_shell": "/bin/bash",
    "fallback_homedir": "/home/%u",
    "use_fully_qualified_names": "False",
}


_NOWHERE = DirectoryAccess("", "", "", "", CA)


def users_json(users: Sequence[User]) -> str:
    """The users as the stack's parameter: without the comments of keys, which may hold anything."""
    people = {user.name: {"uid": user.uid, "keys": [" ".join(key.split()[:2]) for key in user.keys]} for user in users}
    return json.dumps(people, separators=(",", ":"))


def join_script(access: DirectoryAccess, region: str, homes: str = "") -> str:
    """The script that joins a node whose platform knows nothing of directories: certificate, sssd, keys for sshd.
    `homes`: shared folder of the homes, where /home is each node's own."""
    return _script(access, region, certificate=access.ca_object, sssd=True, keys=True, homes=homes)


def certificate_script(cluster: str, region: str) -> str:
    """Fetches the certificate of a directory that the plan makes. $1: s3:// and the bucket."""
    return _script(_NOWHERE, region, certificate=certificate_key(cluster), sssd=False, keys=False)


def keys_script(region: str) -> str:
    """Lets sshd ask for keys, where the platform has set sssd up."""
    return _script(_NOWHERE, region, certificate="", sssd=False, keys=True)


def certificate_key(cluster: str) -> str:
    """Where in the bucket the directory puts its certificate."""
    return f"trainwright/{cluster}/directory/ca.pem"


def _script(access: DirectoryAccess, region: str, *, certificate: str, sssd: bool, keys: bool, homes: str = "") -> str:
    engine = shell_environment(SCRIPTS, trim_blocks=True, lstrip_blocks=True)
    lines = ["[sssd]", "services = nss, pam, ssh", "domains = default", "", "[domain/default]"]
    lines += [f"{name} = {value}" for name, value in access.sssd().items()]
    lines += [f"override_homedir = {homes}/%u"] if homes else []
    return engine.get_template("join.sh.j2").render(
        region=region, ca=access.ca, certificate=certificate, secret=access.secret, sssd=sssd, keys=keys, lines=lines,
        homes=homes,
    )  # fmt: skip
