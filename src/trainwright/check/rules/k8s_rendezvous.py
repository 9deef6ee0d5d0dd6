"""K8S: the address under which the ranks of a job find each other."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.launches.job_sizes import once
from trainwright.check.model import File
from trainwright.check.registry import Problem, rule
from trainwright.check.rules.k8s_hosts import unresolved_hosts
from trainwright.check.rules.k8s_services import unforwarded_ports


@rule("K8S004", "error")
def rendezvous_is_reached(file: File) -> Iterator[Problem]:
    """The address of the rendezvous must lead to the first rank: a name that is resolved, a port that is forwarded.

    The name of a pod (`train-0.train`) is resolved below the subdomain of the pods (of a StatefulSet its serviceName,
    of a JobSet its own name), and only where that is the name of a headless Service that selects them; the middle part
    of a JobSet's name is one of its jobs. Where the headless Service that selects the pods has another name than their
    subdomain, or a Service of the file selects no pod, it is a warning: another one may be in the cluster.

    Where the rendezvous host is a Service of the file, or of another manifest in its directory, that is not headless
    (`clusterIP: None`), its ports must contain the one of `--rdzv_endpoint`, `--master_port` or MASTER_PORT, and
    forward it to the same port: the first rank listens on the number that all ranks are given.

    Why: a name that is not resolved is looked up again, and connections to a port that is not forwarded are dropped:
    the ranks wait 10 minutes (torch, `join_timeout` of 600 s) while every GPU is allocated, and 16 p5.48xlarge cost 15
    USD per minute. NCCL opens further ports, which only a headless Service or the pods' own names reach.

    Fix: one name for Service and subdomain; `clusterIP: None`; or the same port in the Service and in the command.

    Source: Kubernetes documentation, Service (ports, headless Services), DNS for Services and Pods; JobSet, network;
    torch, `torch.distributed.run`; prices of aws_prices.csv.

    When to ignore: an object of the cluster that is not in the directory has the name.
    """
    if file.format == "kubernetes":
        yield from once(p for job in file.jobs for p in unforwarded_ports(file, job))
        yield from once(unresolved_hosts(file))
