"""How the nodes of a cluster learn of the directory's users: by sssd, over TLS, as one reading account."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwright.shell_templates import shell_environment

SCRIPTS = Path(__file__).parent / "scripts"
CA = "/etc/trainwright/directory-ca.pem"  # on the nodes, where the plan makes the directory


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


def join_script(access: DirectoryAccess, region: str, *, sssd: bool) -> str:
    """The script that joins a node. `sssd`: set up sssd too, where the platform does not do it itself."""
    engine = shell_environment(SCRIPTS, trim_blocks=True, lstrip_blocks=True)
    lines = ["[sssd]", "services = nss, pam, ssh", "domains = default", "", "[domain/default]"]
    lines += [f"{name} = {value}" for name, value in access.sssd().items()]
    return engine.get_template("join.sh.j2").render(
        region=region, ca=access.ca, ca_object=access.ca_object, secret=access.secret, sssd=sssd, lines=lines
    )
