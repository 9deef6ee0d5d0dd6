"""SPC: the people of a spec, and the directory that nodes look them up in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trainwright.check.model import CheckedSpec, File
from trainwright.check.registry import Problem, rule
from trainwright.check.rules.spc_cluster import at

# Accounts and groups that nodes have already.
RESERVED = frozenset(
    ("root", "daemon", "bin", "sys", "sync", "mail", "www-data", "nobody", "sshd", "munge", "slurm", "slurmdbd",
     "ubuntu",
     "ec2-user", "rocky", "centos", "admin", "adm", "sudo", "wheel", "docker", "kvm", "video", "render", "disk", "lxd",
     "pcluster-admin", "sagemaker")
)  # fmt: skip
LONGEST = 4096  # characters of a stack's parameter
PER_USER = 40  # characters of a user's row beside the name and the keys


@rule("SPC013", "error")
def people_have_accounts(file: File) -> Iterator[Problem]:
    """The users of a spec must be ones that the cluster can have: each once, and where its nodes look them up.

    ParallelCluster makes no accounts of its own, so its users stand in a directory. A directory that is there already
    has its own users. One that the plan makes holds about 35 users with a key each: CloudFormation passes at most 4,096
    characters.

    Why: an account with another number on one node cannot read its own files there, and `useradd` counts from 1000
    on every node by itself; one that is nowhere cannot sign in.

    Fix: write `directory: true`, or name an existing directory and leave `users` out.

    Source: ParallelCluster, DirectoryService; CloudFormation quotas; login.defs(5), UID_MIN.

    When to ignore: never; `plan` stops at it.
    """
    for spec in file.specs:
        yield from _accounts(spec)
        yield from _twice(spec)


def _accounts(spec: CheckedSpec) -> Iterator[Problem]:
    users, directory = spec.full.users, spec.full.directory
    if users and directory is None and spec.full.platform == "parallelcluster":
        yield at(spec, "users", what="ParallelCluster makes no accounts by itself", fix="add `directory: true`")
    if users and directory is not None and directory.uri is not None:
        yield at(spec, "users", what="an existing directory has its own users", fix="remove `users`, or `uri`")
    if directory is not None and directory.uri is None:
        size = sum(PER_USER + len(user.name) + sum(len(key) for key in user.keys) for user in users)
        if size > LONGEST:
            what = f"the directory of a plan holds about 35 users; these {len(users)} do not fit"
            yield at(spec, "users", what=what, fix="name an existing directory: `directory: {uri: ldaps://…}`")


def _twice(spec: CheckedSpec) -> Iterator[Problem]:
    names = Counter(user.name for user in spec.full.users)
    numbers = Counter(user.uid for user in spec.full.users)
    for index, user in enumerate(spec.full.users):
        if user.name in RESERVED:
            what = f"nodes have an account or group {user.name} of their own"
            yield at(spec, "users", index, "name", what=what, fix="choose another name")
        elif names[user.name] > 1:
            yield at(
                spec, "users", index, "name", what=f"there are {names[user.name]} users {user.name}", fix="keep one"
            )
        elif numbers[user.uid] > 1:
            what = f"{numbers[user.uid]} users have the number {user.uid}: they would be one user to every file system"
            yield at(spec, "users", index, "uid", what=what, fix="give each a number of its own")
