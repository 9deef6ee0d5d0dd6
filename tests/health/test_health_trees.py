"""Recorded nodes: healthy ones pass; every fault gives its own verdict through its own checks, and no other's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import Tree, bus, healthy

from trainwright.health.node import RecordedNode
from trainwright.health.output import as_text
from trainwright.health.profile import profile_of
from trainwright.health.registry import checks
from trainwright.health.suite import run_suite
from trainwright.health.verdict import Report

TYPES = ("p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "trn1.32xlarge", "g5.48xlarge")
SMI = "nvidia-smi -q -x"
EFA = "/sys/class/infiniband/rdmap18s27"


def judged(tree: Tree, folder: Path, suite: str = "quick") -> Report:
    node = RecordedNode(tree.write(folder))
    return run_suite(node, profile_of(node), suite)


def xid(code: int, text: str, gpu: int = 2) -> str:
    return f"NVRM: Xid (PCI:0000:{bus(gpu)}): {code}, {text}"


@pytest.mark.parametrize("instance", TYPES)
@pytest.mark.parametrize("suite", ["quick", "deep"])
def test_a_healthy_node_passes(instance: str, suite: str, tmp_path: Path) -> None:
    report = judged(healthy(instance), tmp_path, suite)
    assert [(r.id, r.status, r.message) for r in report.results if r.status not in ("pass", "skip")] == []
    assert (report.verdict, report.instance, report.complete) == ("pass", instance, True)
    ran = {result.id for result in report.results if result.status == "pass"}
    assert {"host.memory", "storage.nvme", "efa.port_counters"} <= ran
    assert ("gpu.xid" in ran) == (report.instance != "trn1.32xlarge")
    assert ("nvlink.links" in ran) == (instance[0] == "p")
    assert ("neuron.ecc" in ran) == (instance == "trn1.32xlarge")


def lost_gpu(t: Tree) -> None:
    code, out, _ = t.commands[SMI]
    start = out.index(f'\t<gpu id="00000000:{bus(3).upper()}')
    t.commands[SMI] = (code, out[:start] + out[out.index("</gpu>", start) + 7 :], "")
    t.log(f"NVRM: Xid (PCI:0000:{bus(3)}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")


def dead_driver(t: Tree) -> None:
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    t.commands[SMI] = (9, words, "")
    t.commands["nvidia-smi nvlink -s"] = t.commands["nvidia-smi nvlink -e"] = (9, words, "")


def stuck_page(t: Tree) -> None:
    t.change(SMI, "<pending_retirement>N/A", "<pending_retirement>Yes")


def count_error(counter: str, value: int, place: str = f"{EFA}/ports/1/hw_counters") -> Callable[[Tree], None]:
    def change(t: Tree) -> None:
        assert f"{place}/{counter}" in t.files
        t.files[f"{place}/{counter}"] = f"{value}\n"

    return change


def smi(old: str, new: str) -> Callable[[Tree], None]:
    return lambda t: t.change(SMI, old, new)


def logged(*lines: str) -> Callable[[Tree], None]:
    return lambda t: t.log(*lines)


def file(path: str, old: str, new: str) -> Callable[[Tree], None]:
    def change(t: Tree) -> None:
        assert old in t.files[path], (path, t.files[path])
        t.files[path] = t.files[path].replace(old, new, 1)

    return change


def missing_efa(t: Tree) -> None:
    for path in ("/sys/bus/pci/devices/0000:12:1b.0", EFA, "/dev/infiniband/uverbs31"):
        t.remove(path)
    t.change("fi_info -p efa -t FI_EP_RDM", "domain: rdmap18s27-rdm", "domain: rdmap17s27-rdm")


def no_links(t: Tree) -> None:
    code, out, err = t.commands["neuron-ls -j"]
    t.commands["neuron-ls -j"] = (code, out.replace('"connected_to": [\n            8,', '"connected_to": [', 1), err)


def unmounted(t: Tree) -> None:
    t.files["/proc/mounts"] = "/dev/root / ext4 rw,relatime 0 0\n"


def silent_mount(t: Tree) -> None:
    t.command("stat -f -c %T /fsx", code=124, err="stat did not answer in 2 s")


def old_fabric_manager(t: Tree) -> None:
    t.command("nv-fabricmanager --version", "Fabric Manager version is : 570.172.08\n")


def no_efa_provider(t: Tree) -> None:
    t.command("fi_info -p efa -t FI_EP_RDM", code=61, err="fi_getinfo: -61 (No data available)\n")


# name -> (instance type, what is changed, {check: verdict} of everything that is not well)
FAULTS: dict[str, tuple[str, Callable[[Tree], None], dict[str, str]]] = {
    "gpu lost": ("p5.48xlarge", lost_gpu, {"gpu.count": "isolate", "gpu.xid": "isolate"}),
    "gpu lost without a log": (
        "g5.48xlarge",
        lambda t: (lost_gpu(t), t.command("dmesg", "[    0.0] Linux\n"))[0],
        {"gpu.count": "isolate"},
    ),
    "driver dead": ("p4d.24xlarge", dead_driver, {"gpu.driver": "reboot", "nvlink.links": "reset"}),
    "driver asks for a reset": (
        "p5en.48xlarge",
        smi("<gpu_recovery_action>None", "<gpu_recovery_action>Reset"),
        {"gpu.recovery": "reset"},
    ),
    "driver asks for a reboot": (
        "p6-b200.48xlarge",
        smi("<gpu_recovery_action>None", "<gpu_recovery_action>Reboot"),
        {"gpu.recovery": "reboot"},
    ),
    "uncorrected ECC": (
        "p5.48xlarge",
        smi("<dram_uncorrectable>0", "<dram_uncorrectable>2"),
        {"gpu.ecc": "reset"},
    ),
    "corrected ECC": ("p4d.24xlarge", smi("<dram_correctable>0", "<dram_correctable>412"), {"gpu.ecc": "monitor"}),
    "SRAM worn": (
        "p5.48xlarge",
        smi("<sram_threshold_exceeded>No", "<sram_threshold_exceeded>Yes"),
        {"gpu.ecc": "isolate"},
    ),
    "ECC off": ("g5.48xlarge", smi("<current_ecc>Enabled", "<current_ecc>Disabled"), {"gpu.ecc": "monitor"}),
    "page retirement pending": ("p4d.24xlarge", stuck_page, {"gpu.ecc": "reboot"}),
    "row remap pending": (
        "p5en.48xlarge",
        smi("<remapped_row_pending>No", "<remapped_row_pending>Yes"),
        {"gpu.row_remap": "reset"},
    ),
    "row remap failed": (
        "p4d.24xlarge",
        smi("<remapped_row_failure>No", "<remapped_row_failure>Yes"),
        {"gpu.row_remap": "isolate"},
    ),
    "rows remapped": ("p5.48xlarge", smi("<remapped_row_unc>0", "<remapped_row_unc>1"), {"gpu.row_remap": "monitor"}),
    "persistence off": (
        "g5.48xlarge",
        smi("<persistence_mode>Enabled", "<persistence_mode>Disabled"),
        {"gpu.persistence": "monitor"},
    ),
    "thermal slowdown": (
        "p5.48xlarge",
        smi("hw_thermal_slowdown>Not Active", "hw_thermal_slowdown>Active"),
        {"gpu.clocks": "monitor"},
    ),
    "hot": ("p4d.24xlarge", smi("<gpu_temp>33 C", "<gpu_temp>91 C"), {"gpu.clocks": "monitor"}),
    "narrow PCIe": (
        "p5.48xlarge",
        smi("<current_link_width>16x", "<current_link_width>4x"),
        {"gpu.pcie": "isolate"},
    ),
    "PCIe replays": ("p5.48xlarge", smi("<replay_counter>0", "<replay_counter>90211"), {"gpu.pcie": "monitor"}),
    "process left": (
        "g5.48xlarge",
        smi(
            "<processes>\n",
            "<processes>\n<process_info><pid>4711</pid><process_name>python</process_name></process_info>\n",
        ),
        {"gpu.free": "monitor"},
    ),
    "Xid 48": ("p4d.24xlarge", logged(xid(48, "pid=4242, name=python, DBE (double bit error)")), {"gpu.xid": "reset"}),
    "Xid 54": ("p5.48xlarge", logged(xid(54, "Power cable not connected")), {"gpu.xid": "isolate"}),
    "Xid 119": (
        "p5.48xlarge",
        logged(xid(119, "pid=1881, name=python3, Timeout waiting for RPC from GSP0! Expected function 76")),
        {"gpu.xid": "reset"},
    ),
    "Xid 92": ("g5.48xlarge", logged(xid(92, "Excessive SBE interrupts")), {"gpu.xid": "monitor"}),
    "Xid 151": ("p6-b200.48xlarge", logged(xid(151, "Key rotation error")), {"gpu.xid": "reboot"}),
    "Xid 149 fatal": (
        "p6-b200.48xlarge",
        logged(xid(149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000)")),
        {"gpu.xid": "reset"},
    ),
    "Xid 149 nonfatal": (
        "p6-b200.48xlarge",
        logged(xid(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000)")),
        {"gpu.xid": "monitor"},
    ),
    "Xid 154 reboot": (
        "p5.48xlarge",
        logged(xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")),
        {"gpu.xid": "reboot"},
    ),
    "Xid 13 by two programs": (
        "p5.48xlarge",
        logged(
            xid(13, "pid=100, name=train.py, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Illegal Instruction"),
            xid(13, "pid=271, name=other, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address"),
        ),
        {"gpu.xid": "monitor"},
    ),
    "unknown Xid": ("p5.48xlarge", logged(xid(999, "something new")), {"gpu.xid": "monitor"}),
    "NVLink down": (
        "p5.48xlarge",
        lambda t: t.change("nvidia-smi nvlink -s", "Link 7: 26.562 GB/s", "Link 7: <inactive>"),
        {"nvlink.links": "reset"},
    ),
    "NVLink replays": (
        "p4d.24xlarge",
        lambda t: t.change("nvidia-smi nvlink -e", "Link 3: Replay Errors: 0", "Link 3: Replay Errors: 12"),
        {"nvlink.errors": "monitor"},
    ),
    "NVLink recovery failed": (
        "p6-b200.48xlarge",
        lambda t: t.change("nvidia-smi nvlink -e", "Link recovery failed events: 0", "Link recovery failed events: 1"),
        {"nvlink.errors": "reset"},
    ),
    "Fabric Manager stopped": (
        "p4d.24xlarge",
        lambda t: t.command("systemctl is-active nvidia-fabricmanager", "inactive\n", code=3),
        {"nvlink.fabric": "reset"},
    ),
    "fabric not joined": ("p5en.48xlarge", smi("<state>Completed", "<state>In Progress"), {"nvlink.fabric": "reset"}),
    "SXid fatal": (
        "p5.48xlarge",
        logged("nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 23001, Fatal, Link 12 Always Fatal"),
        {"nvlink.sxid": "reboot"},
    ),
    "SXid non-fatal": (
        "p4d.24xlarge",
        logged("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX Short Error Rate"),
        {"nvlink.sxid": "monitor"},
    ),
    "EFA card missing": ("p5.48xlarge", missing_efa, {"efa.count": "isolate"}),
    "EFA card without driver": (
        "p5en.48xlarge",
        lambda t: (t.remove(EFA), t.remove("/dev/infiniband/uverbs15"))[0],
        {"efa.driver": "reboot"},
    ),
    "EFA device file missing": (
        "p4d.24xlarge",
        lambda t: t.remove("/dev/infiniband/uverbs1"),
        {"efa.driver": "reboot"},
    ),
    "EFA port down": ("trn1.32xlarge", file(f"{EFA}/ports/1/state", "4: ACTIVE", "1: DOWN"), {"efa.port": "isolate"}),
    "no EFA provider": ("p6-b200.48xlarge", no_efa_provider, {"efa.provider": "isolate"}),
    "EFA command lost": (
        "p5.48xlarge",
        count_error("no_completion_cmds", 3, f"{EFA}/hw_counters"),
        {"efa.device_counters": "reboot"},
    ),
    "EFA registration failed": (
        "p5.48xlarge",
        count_error("reg_mr_err", 8, f"{EFA}/hw_counters"),
        {"efa.device_counters": "monitor"},
    ),
    "EFA retransmits": ("p5.48xlarge", count_error("retrans_pkts", 90_000), {"efa.port_counters": "monitor"}),
    "EFA remote silent": (
        "trn1.32xlarge",
        count_error("unresponsive_remote_events", 140),
        {"efa.port_counters": "monitor"},
    ),
    "memlock low": (
        "p5.48xlarge",
        file("/proc/self/limits", "unlimited            unlimited", "65536                65536    "),
        {"efa.memlock": "monitor"},
    ),
    "no huge pages": (
        "p4d.24xlarge",
        file("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "5128", "0"),
        {"efa.huge_pages": "monitor"},
    ),
    "no GDRCopy": ("p5.48xlarge", lambda t: t.remove("/sys/module/gdrdrv"), {"efa.gdrcopy": "monitor"}),
    "Neuron device missing": ("trn1.32xlarge", lambda t: t.remove("/dev/neuron9"), {"neuron.count": "isolate"}),
    "Neuron driver missing": (
        "trn1.32xlarge",
        lambda t: (t.remove("/sys/module/neuron"), file("/proc/modules", "neuron ", "nothing ")(t))[0],
        {"neuron.count": "reboot", "host.modules": "reboot"},
    ),
    "Neuron link missing": ("trn1.32xlarge", no_links, {"neuron.links": "isolate"}),
    "Neuron memory": (
        "trn1.32xlarge",
        file("/sys/devices/virtual/neuron_device/neuron4/stats/hardware/mem_ecc_uncorrected", "0", "1"),
        {"neuron.ecc": "isolate"},
    ),
    "Neuron hardware error": (
        "trn1.32xlarge",
        logged("neuron: NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR instance-id=i-0 hostname=ip-10-1-7-42 nd-id=4 nc-id=0"),
        {"neuron.log": "isolate"},
    ),
    "memory missing": (
        "p5.48xlarge",
        lambda t: t.files.update({"/proc/meminfo": "MemTotal:       1925000000 kB\n"}),
        {"host.memory": "isolate"},
    ),
    "processors offline": (
        "p5.48xlarge",
        file("/sys/devices/system/cpu/online", "0-191", "0-90,92-191"),
        {"host.cpus": "isolate"},
    ),
    "module missing": ("g5.48xlarge", file("/proc/modules", "nvidia_uvm ", "other "), {"host.modules": "reboot"}),
    "memory error": (
        "p4d.24xlarge",
        logged("Memory failure: 0x1c3a2f: recovery action for dirty LRU page: Recovered"),
        {"host.hardware": "isolate"},
    ),
    "disk error": (
        "g5.48xlarge",
        logged("I/O error, dev nvme3n1, sector 918273 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2"),
        {"host.hardware": "isolate"},
    ),
    "hung task": (
        "p5.48xlarge",
        logged("INFO: task python:4711 blocked for more than 122 seconds."),
        {"host.hardware": "monitor"},
    ),
    "clock off": (
        "p5.48xlarge",
        lambda t: t.change("chronyc -n tracking", "0.000001532", "341.000000000"),
        {"host.clock": "isolate"},
    ),
    "clock drifting": (
        "trn1.32xlarge",
        lambda t: t.change("chronyc -n tracking", "0.000001532", "0.210000000"),
        {"host.clock": "monitor"},
    ),
    "name unknown": (
        "p5.48xlarge",
        lambda t: t.command("getent ahosts ip-10-1-7-42", code=2),
        {"host.name": "isolate"},
    ),
    "name is loopback": (
        "g5.48xlarge",
        lambda t: t.command("getent ahosts ip-10-1-7-42", "127.0.1.1       STREAM ip-10-1-7-42\n"),
        {"host.name": "monitor"},
    ),
    "small /dev/shm": (
        "g5.48xlarge",
        lambda t: t.change("df -P -k /dev/shm", "1056342016         0 1056342016", "65536         0 65536"),
        {"host.shm": "monitor"},
    ),
    "disk full": ("p5.48xlarge", lambda t: t.change("df -P -k -l", "31% /", "100% /"), {"storage.space": "isolate"}),
    "disk filling": ("p5.48xlarge", lambda t: t.change("df -P -k -l", "31% /", "93% /"), {"storage.space": "monitor"}),
    "no inodes": ("g5.48xlarge", lambda t: t.change("df -P -i -l", "2% /", "100% /"), {"storage.space": "isolate"}),
    "NVMe missing": ("p5.48xlarge", lambda t: t.remove("/sys/block/nvme3n1"), {"storage.nvme": "isolate"}),
    "RAID degraded": (
        "p4d.24xlarge",
        file("/proc/mdstat", "nvme1n1[0]", "nvme1n1[0](F)"),
        {"storage.raid": "isolate"},
    ),
    "not mounted": ("p5.48xlarge", unmounted, {"storage.mounts": "isolate"}),
    "mount silent": ("trn1.32xlarge", silent_mount, {"storage.mounts": "isolate"}),
    "mount read-only": (
        "p4d.24xlarge",
        file("/proc/mounts", "lustre rw,", "lustre ro,"),
        {"storage.mounts": "isolate"},
    ),
    "old Fabric Manager": ("p5.48xlarge", old_fabric_manager, {"software.versions": "isolate"}),
    "old plugin for B200": (
        "p6-b200.48xlarge",
        file("/opt/amazon/efa_installed_packages", "libnccl-ofi_1.18.0", "libnccl-ofi_1.14.2"),
        {"software.versions": "monitor"},
    ),
    "EFA driver without peer memory": (
        "p5.48xlarge",
        file("/sys/module/efa/version", "3.0.0", "2.17.2"),
        {"software.versions": "monitor"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_gives_its_own_verdict_and_no_other(name: str, tmp_path: Path) -> None:
    instance, change, expected = FAULTS[name]
    tree = healthy(instance)
    change(tree)
    report = judged(tree, tmp_path)
    assert {r.id: r.verdict for r in report.results if r.status not in ("pass", "skip")} == expected, report.reason
    order = ("pass", "monitor", "reset", "reboot", "isolate")
    assert report.verdict == max(expected.values(), key=order.index)
    assert report.usable == (report.verdict == "monitor")


def topology_broken(t: Tree) -> None:
    t.change("nvidia-smi topo -m", "GPU2\tNV18", "GPU2\tPHB")  # GPU2 to GPU0, and the other way:
    t.change("nvidia-smi topo -m", "GPU0\t X \tNV18\tNV18", "GPU0\t X \tNV18\tPHB")


def boots(count: int) -> Callable[[Tree], None]:
    line = '{{"_BOOT_ID": "boot{}", "MESSAGE": "NVRM: Xid (PCI:0000:53:00): 119, pid=1, name=x, Timeout"}}\n'
    words = "journalctl -k -o json --no-pager --since=-30d --grep=NVRM: Xid"
    return lambda t: t.command(words, "".join(line.format(number) for number in range(count)))


def test_every_check_has_a_fault_tree() -> None:
    """A check that no tree can trip is not known to work. The deep ones have tests of their own below."""
    tripped = {check for _, _, expected in FAULTS.values() for check in expected}
    quick = {one.id for one in checks() if one.suite == "quick"}
    assert quick - tripped == set()


def test_a_broken_topology_is_found_by_the_deep_suite(tmp_path: Path) -> None:
    tree = healthy("p5.48xlarge")
    topology_broken(tree)
    report = judged(tree, tmp_path, "deep")
    fault = ("nvlink.topology", "isolate", "GPU0-GPU2 PHB where the others are NV18")
    assert [(r.id, r.verdict, r.message) for r in report.faults] == [fault]


@pytest.mark.parametrize(("count", "verdict"), [(1, "pass"), (2, "pass"), (3, "isolate")])
def test_an_error_that_survives_restarts_isolates_the_node(count: int, verdict: str, tmp_path: Path) -> None:
    tree = healthy("p5.48xlarge")
    boots(count)(tree)
    assert judged(tree, tmp_path, "deep").verdict == verdict


def diagnostic(status: str, category: str = "Hardware") -> str:
    result = {"gpu_id": "3", "status": status, "warnings": [{"warning": "GPU 3 had uncorrectable memory errors"}]}
    tests = [{"name": "GPU Memory", "results": [{"gpu_id": "0", "status": "Pass"}, result]}]
    body = {"version": "4.5.1", "test_categories": [{"category": category, "tests": tests}]}
    return json.dumps({"DCGM Diagnostic": body})


@pytest.mark.parametrize(
    ("out", "verdict"),
    [
        (diagnostic("Pass"), "pass"),
        (diagnostic("Fail"), "isolate"),
        (diagnostic("Fail", "Deployment"), "monitor"),
        (diagnostic("Skip"), "pass"),
        ("Error: unable to establish a connection to the specified host: localhost", "pass"),
    ],
)
def test_dcgm_is_believed(out: str, verdict: str, tmp_path: Path) -> None:
    tree = healthy("p5.48xlarge")
    tree.command("dcgmi diag -r 2 -j", out)
    tree.command("dcgmi --version", "dcgmi  version: 4.5.1\n")
    report = judged(tree, tmp_path, "deep")
    result = next(result for result in report.results if result.id == "gpu.dcgm")
    assert report.verdict == verdict
    assert verdict == "pass" or "uncorrectable memory errors" in result.message
    assert (result.status == "skip") == out.startswith("Error")


def test_what_a_reset_has_dealt_with_is_history(tmp_path: Path) -> None:
    tree = healthy("p5.48xlarge")
    change = "GPU recovery action changed from {} to {}"
    tree.log(
        xid(119, "pid=1881, name=python3, Timeout waiting for RPC from GSP0!"),
        xid(154, change.format("0x0 (None)", "0x1 (GPU Reset Required)")),
        xid(154, change.format("0x1 (GPU Reset Required)", "0x0 (None)")),
    )
    assert judged(tree, tmp_path).verdict == "pass"


def test_an_application_fault_is_not_the_nodes(tmp_path: Path) -> None:
    tree = healthy("p5.48xlarge")
    tree.log(xid(31, "pid=1881, name=python3, MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f"))
    assert judged(tree, tmp_path).verdict == "pass"


def test_a_log_that_may_not_be_read_is_not_green(tmp_path: Path) -> None:
    tree = healthy("p5.48xlarge")
    tree.command("dmesg", code=1, err="dmesg: read kernel buffer failed: Operation not permitted\n")
    report = judged(tree, tmp_path)
    assert (report.verdict, report.complete) == ("pass", False)
    assert "not complete" in as_text(report)


def test_a_check_that_raises_neither_stops_the_others_nor_drains_the_node(tmp_path: Path) -> None:
    tree = healthy("p5.48xlarge")
    tree.files["/sys/devices/system/cpu/online"] = "all of them"
    report = judged(tree, tmp_path)
    wrong = [(r.id, r.status, r.verdict) for r in report.results if r.status not in ("pass", "skip")]
    assert wrong == [("host.cpus", "error", "monitor")]
    assert report.usable
    assert not report.complete
