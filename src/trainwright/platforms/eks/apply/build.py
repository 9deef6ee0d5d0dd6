"""`up` of EKS: the stacks around it, the cluster by eksctl or by stacks of our own, then charts and objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from trainwright.aws.eks import EksApi
from trainwright.platforms.apply.build import Build, without_header
from trainwright.platforms.apply.stack_steps import StackOrder
from trainwright.platforms.apply.steps import Step
from trainwright.platforms.containers import service_account
from trainwright.platforms.eks.apply.eksctl import EksctlCommand, EksctlStack, stack_name
from trainwright.platforms.eks.apply.kube_steps import ChartUp, KubeconfigUp, Leftovers, apply_words
from trainwright.platforms.eks.apply.programs import Command, Programs, RealPrograms, require
from trainwright.platforms.eks.apply.sizes import GroupSizes
from trainwright.platforms.eks.charts import manifests
from trainwright.platforms.eks.cluster_file import ACCESS_FILE, identity_file
from trainwright.platforms.eks.nodegroups import SYSTEM
from trainwright.platforms.eks.own_stacks import ADDONS, CONTROL, NODES
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import StackPlan
from trainwright.schedulers.kubernetes.own_config import context_of, own_kubeconfig
from trainwright.stacks.references import fill, references

EFA_OF_EKSCTL = "aws-efa-k8s-device-plugin-daemonset"
SCALE = "scale"  # keys: scale-QUEUE
IN_SYSTEM = ("--namespace", "kube-system", "--ignore-not-found")
READY = ["kubectl", "wait", "--for=condition=Ready", "node", "-l", f"eks.amazonaws.com/nodegroup={SYSTEM}"]


@dataclass
class EksBuild(Build):
    """One plan of EKS on its way to AWS."""

    programs: Programs = field(default_factory=RealPrograms, kw_only=True)

    @cached_property
    def by_eksctl(self) -> bool:
        """Which of the two ways: the one on which the cluster was begun, else eksctl where it is installed."""
        if stack_name(self.name) in self._begun:
            return True
        return f"{self.name}-{CONTROL}" not in self._begun and self.programs.has("eksctl")

    @cached_property
    def _begun(self) -> set[str]:
        """The names of the cluster's stacks that are there before this run."""
        return {stack.name for stack in self.stacks.of_cluster(self.name)}

    @property
    def notes(self) -> tuple[str, ...]:
        if self.by_eksctl:
            how = "by eksctl, with the plan's cluster.yaml; changes of a node group's size are eksctl's too"
            return (f"{how} (eksctl scale nodegroup)",)
        why = "it was begun so" if self.programs.has("eksctl") else "eksctl is not on this machine's path"
        return (f"by stacks of our own ({CONTROL}, {NODES}-…, {ADDONS}): {why}",)

    @cached_property
    def sizes(self) -> GroupSizes:
        return GroupSizes(self.account, self.plan.spec)

    @property
    def left_to_do(self) -> tuple[str, ...]:
        return self.sizes.waiting()

    def require(self) -> None:
        tools = ["kubectl", "helm", *(["eksctl"] if self.by_eksctl else [])]
        require(self.programs, tools, "the cluster's charts and objects are installed with them")

    def planned(self) -> tuple[StackPlan, ...]:
        return self.plan.stacks if self.by_eksctl else (*self.plan.stacks, *self.plan.own_stacks)

    def orders(self) -> list[StackOrder]:
        return [self._sized(order) if "DesiredSize" in order.parameters else order for order in super().orders()]

    def _sized(self, order: StackOrder) -> StackOrder:
        given = order.parameters
        planned, least, most = (int(given[f"{name}Size"]) for name in ("Desired", "Min", "Max"))
        size = self.sizes.desired(given["NodeGroup"], planned, least, most)
        return replace(order, parameters={**given, "DesiredSize": str(size)})

    def needs_of(self, stack: StackPlan) -> tuple[str, ...]:
        nodes = (f"{NODES}-{SYSTEM}",) if stack.key == ADDONS else ()  # these add-ons are ready only on a node
        return (*super().needs_of(stack), *nodes)

    def steps(self, stop_nodes: bool = False) -> list[Step]:
        steps = self.stack_steps()
        if self.by_eksctl:
            steps += self._eksctl_steps()
        cluster = tuple(step.key for step in steps)
        rest = Leftovers("leftovers", "interfaces of earlier nodes", cluster, account=self.account, cluster=self.name)
        return [*steps, rest, *self._kube_steps(cluster)]

    # The cluster, by eksctl

    def config(self) -> str:
        """cluster.yaml with the ids of what the stacks made, and the nodes of capacity blocks that have begun."""
        text = fill(without_header(self.plan.files["cluster.yaml"]), self.outputs)
        if not self.sizes.blocks:
            return text
        data = yaml.safe_load(text)
        for group in (*data["managedNodeGroups"], *data.get("nodeGroups", [])):
            sizes = (group["desiredCapacity"], group["minSize"], group["maxSize"])
            group["desiredCapacity"] = self.sizes.desired(group["name"], *sizes)
        return yaml.safe_dump(data, sort_keys=False)

    def _eksctl_steps(self) -> list[Step]:
        data = yaml.safe_load(self.plan.files["cluster.yaml"])
        needs = tuple(dict.fromkeys(key for key, _ in references(self.plan.files["cluster.yaml"])))
        steps: list[Step] = [self._eksctl(CONTROL, f"cluster {self.name} (eksctl)", needs, ())]
        for group in (*data["managedNodeGroups"], *data.get("nodeGroups", [])):
            name = group["name"]
            steps.append(self._eksctl(f"{NODES}-{name}", f"node group {name} (eksctl)", (CONTROL,), (name,)))
        steps += self._scale_steps()
        groups = tuple(step.key for step in steps)
        steps.append(self._command(ADDONS, "add-ons (eksctl)", groups, "addon", lambda: True))
        for one in data["iam"].get("podIdentityAssociations") or []:
            who = (one["namespace"], one["serviceAccountName"])
            wanted = partial(self._lacks_rights, *who)
            title = f"rights of {'/'.join(who)} (eksctl)"
            left = f"eksctl-{self.name}-podidentityrole-{'-'.join(who)}"
            step = self._command(f"identity-{who[1]}", title, groups, "podidentityassociation", wanted, left)
            steps.append(replace(step, config=partial(self._text, identity_file(who[1]))))
        if ACCESS_FILE in self.plan.files:
            step = self._command(
                "access", "nodes of Karpenter may join (eksctl)", groups, "accessentry", self._lacks_access
            )
            steps.append(replace(step, config=partial(self._text, ACCESS_FILE)))
        return steps

    def _scale_steps(self) -> list[Step]:
        """eksctl makes node groups from its file and changes none: their size is a command of its own."""
        cluster = ["--region", self.account.region, "--cluster", self.name]
        steps: list[Step] = []
        for group, nodes in self.sizes.to_scale().items():
            if stack_name(self.name, group) not in self._begun:
                continue
            words = ["eksctl", "scale", "nodegroup", *cluster, "--name", group, "--nodes", str(nodes)]
            title = f"nodes of queue {group}: {nodes} (eksctl scale nodegroup)"
            after = (f"{NODES}-{group}",)
            steps.append(Command(f"{SCALE}-{group}", title, after, programs=self.programs, words=partial(list, words)))
        return steps

    def files_of(self, key: str) -> tuple[str, ...]:
        return ("cluster.yaml",) if key.startswith(f"{SCALE}-") else super().files_of(key)

    def _lacks_access(self) -> bool:
        [entry] = yaml.safe_load(self._text(ACCESS_FILE))["accessConfig"]["accessEntries"]
        return entry["principalARN"] not in EksApi(self.account).principals(self.name)

    def _lacks_rights(self, namespace: str, account: str) -> bool:
        return not EksApi(self.account).has_identity(self.name, namespace, account)

    def _eksctl(self, key: str, title: str, needs: tuple[str, ...], group: tuple[str, ...]) -> Step:
        return EksctlStack(
            key, title, needs, api=self.stacks, programs=self.programs, cluster=self.name, config=self.config,
            group=group[0] if group else "",
        )  # fmt: skip

    def _command(
        self, key: str, title: str, needs: tuple[str, ...], noun: str, wanted: Callable[[], bool], leftover: str = ""
    ) -> EksctlCommand:
        return EksctlCommand(
            key, title, needs, programs=self.programs, noun=noun, config=self.config, wanted=wanted,
            stacks=self.stacks, leftover=leftover,
        )  # fmt: skip

    # What runs on it

    @property
    def kubeconfig(self) -> Path:
        return own_kubeconfig(context_of(self.name))

    def _kube_steps(self, cluster: tuple[str, ...]) -> list[Step]:
        api = EksApi(self.account)
        chain: list[Step] = [KubeconfigUp("kubeconfig", "way to the API", cluster, api=api, cluster=self.name)]

        def then(key: str, title: str, words: list[str], text: Callable[[], str] = lambda: "") -> None:
            chain.append(
                Command(
                    key, title, (chain[-1].key,), programs=self.programs, words=lambda: words, text=text,
                    kubeconfig=self.kubeconfig,
                )
            )  # fmt: skip

        then("nodes-ready", "system nodes ready", [*READY, "--timeout=10m"])
        if first := self._first_objects():
            then("objects-first", "namespace and service account", apply_words("-"), lambda: first)
        if self.by_eksctl:  # it installs an older EFA plugin beside that of the plan's charts
            then("efa-plugin", "one EFA plugin", ["kubectl", "delete", "daemonset", EFA_OF_EKSCTL, *IN_SYSTEM])
        for manifest in manifests(Setting(self.plan.spec)):
            source = (self._written(manifest["folder"]), "-k") if manifest["folder"] else (manifest["url"],)
            then(f"manifest-{manifest['name']}", f"manifest {manifest['name']}", apply_words(*source))
        for chart in json.loads(self.plan.files["charts.json"]):
            chain += self.chart_steps(chart, chain[-1].key)
        for file in sorted(name for name in self.plan.files if name.startswith("kubernetes/")):
            then(f"objects-{Path(file).stem}", f"objects of {file}", apply_words("-"), partial(self._text, file))
        return chain

    @cached_property
    def _folder(self) -> TemporaryDirectory[str]:
        return TemporaryDirectory(prefix="trainwright-")  # gone with the build

    def _written(self, folder: str) -> str:
        """A folder of the plan on this machine's disk: kubectl reads no kustomization of its standard input."""
        place = Path(self._folder.name, folder)
        place.mkdir(parents=True, exist_ok=True)
        for name in (name for name in self.plan.files if name.startswith(f"{folder}/")):
            (place / Path(name).name).write_text(self.plan.files[name], encoding="utf-8")
        return str(place)

    def chart_steps(self, chart: Mapping[str, Any], after: str) -> list[Step]:
        """What installs one chart, after a step."""
        title = f"chart {chart['name']} {chart['version']}"
        return [
            ChartUp(
                f"chart-{chart['name']}", title, (after,), programs=self.programs, chart=chart,
                kubeconfig=self.kubeconfig,
            )
        ]  # fmt: skip

    def _text(self, file: str) -> str:
        return fill(self.plan.files[file], self.outputs)

    def _first_objects(self) -> str:
        """The namespace of jobs, and their service account where eksctl does not make it."""
        spec = self.plan.spec
        namespace, account = spec.kubernetes.namespace, service_account(spec)
        objects: list[dict[str, Any]] = []
        if namespace != "default":
            objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        if account and not spec.kubernetes.service_account and not self.by_eksctl:
            meta = {"name": account, "namespace": namespace}
            objects.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        return yaml.safe_dump_all(objects) if objects else ""
