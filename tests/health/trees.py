"""Recordings of nodes as `--record` writes them, in the formats of the real programs: a healthy node of a type, which a
test then changes in one place to make a fault."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.health.profile import Profile, known_profiles

NAMES = {
    "a100-40": "NVIDIA A100-SXM4-40GB",
    "h100": "NVIDIA H100 80GB HBM3",
    "h200": "NVIDIA H200",
    "a10g": "NVIDIA A10G",
}
NAMES |= {"b200": "NVIDIA B200"}
DRIVER, EFA_DRIVER = "580.126.16", "3.0.0"
SITE = "/opt/pytorch/lib/python3.12/site-packages"
LINK_RATE = {"a100-40": "25 GB/s", "h100": "26.562 GB/s", "h200": "26.562 GB/s", "b200": "50 GB/s"}
OLD_COUNTERS = ("Replay Errors", "Recovery Errors", "CRC Errors")
NEW_COUNTERS = (
    "Malformed packet Errors",
    "Buffer overrun Errors",
    "Rx Errors",
    "Rx remote Errors",
    "Rx General Errors",
)
NEW_COUNTERS += ("Local link integrity Errors", "Tx discards", "Link recovery successful events")
NEW_COUNTERS += ("Link recovery failed events", "Total link recovery events", "Effective Errors", "Symbol Errors")
DEVICE_COUNTERS = "submitted_cmds completed_cmds cmds_err no_completion_cmds keep_alive_rcvd alloc_pd_err create_qp_err"
DEVICE_COUNTERS += " create_cq_err reg_mr_err alloc_ucontext_err create_ah_err mmap_err"
PORT_COUNTERS = {"tx_bytes": 8_123_456_789, "tx_pkts": 9_876_543, "rx_bytes": 8_123_000_111, "rx_pkts": 9_876_111}
PORT_COUNTERS |= dict.fromkeys(
    ("rx_drops", "rdma_read_wr_err", "rdma_write_wr_err", "retrans_bytes", "retrans_pkts"), 0
)
PORT_COUNTERS |= dict.fromkeys(("retrans_timeout_events", "unresponsive_remote_events"), 0)
PORT_COUNTERS |= {"impaired_remote_conn_events": 0, "lifespan": 12}


@dataclass
class Tree:
    """A recording in the making."""

    profile: Profile
    files: dict[str, str] = field(default_factory=dict)
    commands: dict[str, tuple[int, str, str]] = field(default_factory=dict)

    def command(self, words: str, out: str = "", code: int = 0, err: str = "") -> None:
        self.commands[words] = (code, out, err)

    def change(self, words: str, old: str, new: str, times: int = 1) -> None:
        """Replace text in a command's output; a fault that changes nothing is a mistake in the test."""
        code, out, err = self.commands[words]
        assert old in out, f"{old!r} is not in the output of {words}"
        self.commands[words] = (code, out.replace(old, new, times), err)

    def log(self, *lines: str) -> None:
        """Lines at the end of the kernel log."""
        code, out, err = self.commands["dmesg"]
        self.commands["dmesg"] = (code, out + "".join(f"[ 9271.{n:06}] {line}\n" for n, line in enumerate(lines)), err)

    def remove(self, prefix: str) -> None:
        gone = [path for path in self.files if path.startswith(prefix)]
        assert gone, prefix
        for path in gone:
            del self.files[path]

    def write(self, folder: Path) -> Path:
        ran = [
            {"command": _words(words), "code": code, "out": out, "err": err}
            for words, (code, out, err) in self.commands.items()
        ]
        recording = {
            "name": "ip-10-1-7-42",
            "time": 1_790_000_000.0,
            "packages": [SITE],
            "files": self.files,
            "ran": ran,
        }
        recording["programs"] = sorted({words.split()[0] for words in self.commands})
        path = folder / "node.json"
        path.write_text(json.dumps({**recording, "files": self.files}))
        return path


def _words(command: str) -> list[str]:
    """The words of a command; what follows `--grep=` is one word."""
    head, grep, pattern = command.partition(" --grep=")
    return [*head.split(), *([f"--grep={pattern}"] if grep else [])]


def healthy(instance: str) -> Tree:
    """A node of this type with nothing wrong."""
    profile = known_profiles()[instance]
    tree = Tree(profile)
    _host(tree)
    if profile.gpus:
        _gpus(tree)
    if profile.efa:
        _efa(tree)
    if profile.neuron:
        _neuron(tree)
    return tree


def bus(index: int) -> str:
    """The address of a GPU, as eight of them lie on p5's bus."""
    return f"{0x53 + 0x11 * index // 2 * 2:02x}:00"


def _host(tree: Tree) -> None:
    p = tree.profile
    dmi = "/sys/devices/virtual/dmi/id"
    memory = int((p.memory_mib or 0) * 1024 * 0.983)
    tree.files |= {
        f"{dmi}/sys_vendor": "Amazon EC2\n",
        f"{dmi}/product_name": f"{p.instance}\n",
        "/proc/meminfo": f"MemTotal:       {memory} kB\nMemFree:        {memory - 9_000_000} kB\n",
        "/sys/devices/system/cpu/online": f"0-{(p.vcpus or 1) - 1}\n",
        "/proc/sys/kernel/hostname": "ip-10-1-7-42\n",
        "/proc/sys/kernel/osrelease": "6.14.0-1018-aws\n",
        "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
        "/etc/fstab": "LABEL=cloudimg-rootfs / ext4 discard 0 1\n"
        "fs-0123.fsx.us-east-2.amazonaws.com@tcp:/abcd /fsx lustre defaults,noatime,flock,_netdev 0 0\n",
        "/proc/mounts": "/dev/root / ext4 rw,relatime 0 0\n"
        "10.1.0.9@tcp:/abcd /fsx lustre rw,seclabel,noatime,flock 0 0\n",
        "/proc/mdstat": "Personalities : [raid0]\n"
        "md0 : active raid0 nvme8n1[7] nvme1n1[0] nvme2n1[1]\n"
        "      29687513088 blocks super 1.2 512k chunks\n\nunused devices: <none>\n",
        "/proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n",
        f"{SITE}/torch-2.9.1.dist-info/METADATA": "",
        "/proc/modules": "ena 180224 0 - Live 0x0000000000000000\n",
    }
    for number in range(p.nvme_disks or 0):
        tree.files[f"/sys/block/nvme{number + 1}n1/device/model"] = "Amazon EC2 NVMe Instance Storage        \n"
    tree.files["/sys/block/nvme0n1/device/model"] = "Amazon Elastic Block Store              \n"
    df = "Filesystem     1024-blocks      Used  Available Capacity Mounted on\n"
    tree.command("df -P -k -l", f"{df}/dev/root        203056560  61112340  141927836      31% /\n"
                 "/dev/md0       29571354624  12345678 29559008946       1% /opt/dlami/nvme\n")  # fmt: skip
    tree.command("df -P -i -l", "Filesystem        Inodes  IUsed     IFree IUse% Mounted on\n"
                 "/dev/root       26214400 412345  25802055    2% /\n")  # fmt: skip
    tree.command("df -P -k /dev/shm", f"{df}tmpfs           1056342016         0 1056342016       0% /dev/shm\n")
    tree.command("stat -f -c %T /fsx", "lustre\n")
    tree.command(
        "getent ahosts ip-10-1-7-42", "10.1.7.42       STREAM ip-10-1-7-42.ec2.internal\n10.1.7.42       DGRAM\n"
    )
    tree.command("chronyc -n tracking", "Reference ID    : A9FEA97B (169.254.169.123)\nStratum         : 4\n"
                 "System time     : 0.000001532 seconds slow of NTP time\nLeap status     : Normal\n")  # fmt: skip
    tree.command("dmesg", "[    0.000000] Linux version 6.14.0-1018-aws (buildd@lcy02-amd64-059)\n"
                 "[   12.301022] nvme nvme1: 8/0/0 default/read/poll queues\n"
                 "[   14.110034] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.16\n")  # fmt: skip
    tree.command("sinfo --version", "slurm 25.05.3\n")


def _gpus(tree: Tree) -> None:
    p = tree.profile
    count = p.gpus or 0
    for index in range(count):
        place = f"/sys/bus/pci/devices/0000:{bus(index)}.0"
        tree.files |= {f"{place}/vendor": "0x10de\n", f"{place}/device": "0x2330\n", f"{place}/class": "0x030200\n"}
    tree.files["/proc/modules"] += "nvidia_uvm 2076672 4 - Live 0x0\nnvidia 14376960 64 nvidia_uvm, Live 0x0\n"
    tree.files |= {"/sys/module/nvidia/version": f"{DRIVER}\n", "/dev/nvidiactl": ""}
    tree.files[f"{SITE}/nvidia_nccl_cu13-2.28.9.dist-info/METADATA"] = ""
    tree.files[f"{SITE}/nvidia_cuda_runtime-13.0.96.dist-info/METADATA"] = ""
    body = "".join(_gpu_xml(p, index) for index in range(count))
    tree.command(
        "nvidia-smi -q -x",
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>Sun Nov 15 11:20:31 2026</timestamp>\n\t<driver_version>{DRIVER}</driver_version>\n"
        f"\t<cuda_version>13.0</cuda_version>\n\t<attached_gpus>{count}</attached_gpus>\n{body}</nvidia_smi_log>\n",
    )
    if p.nvlinks:
        _nvlinks(tree, count, p.nvlinks)


def _gpu_xml(p: Profile, index: int) -> str:
    fabric = "N/A" if p.accelerator in ("a100-40", "a10g") else "Completed"
    status = "N/A" if fabric == "N/A" else "Success"
    return f"""\t<gpu id="00000000:{bus(index).upper()}.0">
\t\t<product_name>{NAMES[p.accelerator]}</product_name>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<uuid>GPU-{index:08x}-c96d-b557-bc75-697f04917eda</uuid>
\t\t<minor_number>{index}</minor_number>
\t\t<gpu_reset_status>
\t\t\t<reset_required>Requested functionality has been deprecated</reset_required>
\t\t</gpu_reset_status>
\t\t<gpu_recovery_action>None</gpu_recovery_action>
\t\t<pci>
\t\t\t<pci_bus_id>00000000:{bus(index).upper()}.0</pci_bus_id>
\t\t\t<pci_gpu_link_info>
\t\t\t\t<pcie_gen>
\t\t\t\t\t<max_link_gen>5</max_link_gen>
\t\t\t\t\t<current_link_gen>5</current_link_gen>
\t\t\t\t</pcie_gen>
\t\t\t\t<link_widths>
\t\t\t\t\t<max_link_width>16x</max_link_width>
\t\t\t\t\t<current_link_width>16x</current_link_width>
\t\t\t\t</link_widths>
\t\t\t</pci_gpu_link_info>
\t\t\t<replay_counter>0</replay_counter>
\t\t</pci>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
\t\t\t<clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
\t\t\t<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
\t\t\t<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
\t\t\t<clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
\t\t\t<clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
\t\t</clocks_event_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>81559 MiB</total>
\t\t\t<used>0 MiB</used>
\t\t</fb_memory_usage>
\t\t<ecc_mode>
\t\t\t<current_ecc>Enabled</current_ecc>
\t\t\t<pending_ecc>Enabled</pending_ecc>
\t\t</ecc_mode>
\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<sram_correctable>0</sram_correctable>
\t\t\t\t<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
\t\t\t\t<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
\t\t\t\t<dram_correctable>0</dram_correctable>
\t\t\t\t<dram_uncorrectable>0</dram_uncorrectable>
\t\t\t</volatile>
\t\t\t<aggregate>
\t\t\t\t<sram_correctable>0</sram_correctable>
\t\t\t\t<dram_uncorrectable>0</dram_uncorrectable>
\t\t\t\t<sram_threshold_exceeded>No</sram_threshold_exceeded>
\t\t\t</aggregate>
\t\t</ecc_errors>
\t\t<retired_pages>
\t\t\t<pending_retirement>N/A</pending_retirement>
\t\t</retired_pages>
\t\t<remapped_rows>
\t\t\t<remapped_row_corr>0</remapped_row_corr>
\t\t\t<remapped_row_unc>0</remapped_row_unc>
\t\t\t<remapped_row_pending>No</remapped_row_pending>
\t\t\t<remapped_row_failure>No</remapped_row_failure>
\t\t</remapped_rows>
\t\t<temperature>
\t\t\t<gpu_temp>{31 + index} C</gpu_temp>
\t\t\t<gpu_temp_tlimit>53 C</gpu_temp_tlimit>
\t\t</temperature>
\t\t<fabric>
\t\t\t<state>{fabric}</state>
\t\t\t<status>{status}</status>
\t\t</fabric>
\t\t<processes>
\t\t</processes>
\t</gpu>
"""


def _nvlinks(tree: Tree, gpus: int, links: int) -> None:
    p = tree.profile
    heads = [f"GPU {g}: {NAMES[p.accelerator]} (UUID: GPU-{g:08x}-c96d-b557-bc75-697f04917eda)\n" for g in range(gpus)]
    up = "".join(f"\t Link {link}: {LINK_RATE[p.accelerator]}\n" for link in range(links))
    tree.command("nvidia-smi nvlink -s", "".join(head + up for head in heads))
    counters = NEW_COUNTERS if p.accelerator == "b200" else OLD_COUNTERS
    clean = "".join(f"\t Link {link}: {name}: 0\n" for link in range(links) for name in counters)
    if p.accelerator == "b200":  # corrected codewords run into billions on a healthy link
        clean += "".join(f"\t Link {link}: FEC Errors - 0: 36140749276\n" for link in range(links))
        clean += "".join(f"\t Link {link}: Effective BER: 15e-255\n" for link in range(links))
    tree.command("nvidia-smi nvlink -e", "".join(head + clean for head in heads))
    columns = "\t".join(f"GPU{g}" for g in range(gpus))
    matrix = "".join(
        f"GPU{g}\t" + "\t".join(" X " if g == other else f"NV{links}" for other in range(gpus)) + "\t0-47,96-143\t0\n"
        for g in range(gpus)
    )
    tree.command(
        "nvidia-smi topo -m",
        f"\t\x1b[4m{columns}\tCPU Affinity\tNUMA Affinity\x1b[0m\n{matrix}\nLegend:\n\n  X    = Self\n",
    )
    tree.command("systemctl is-active nvidia-fabricmanager", "active\n")
    tree.command("nv-fabricmanager --version", f"Fabric Manager version is : {DRIVER}\n")


def _efa(tree: Tree) -> None:
    cards = tree.profile.efa or 0
    domains = []
    for card in range(cards):
        name, place = f"rdmap{16 + card}s27", f"/sys/bus/pci/devices/0000:{0x10 + card:02x}:1b.0"
        tree.files |= {f"{place}/vendor": "0x1d0f\n", f"{place}/device": "0xefa2\n", f"{place}/class": "0x020000\n"}
        device = f"/sys/class/infiniband/{name}"
        tree.files |= {f"{device}/device/device": "0xefa2\n", f"{device}/ports/1/state": "4: ACTIVE\n"}
        tree.files |= {f"{device}/hw_counters/{counter}": "0\n" for counter in DEVICE_COUNTERS.split()}
        tree.files |= {f"{device}/hw_counters/{counter}": "2811\n" for counter in ("submitted_cmds", "completed_cmds")}
        tree.files |= {f"{device}/ports/1/hw_counters/{c}": f"{value}\n" for c, value in PORT_COUNTERS.items()}
        tree.files[f"/dev/infiniband/uverbs{card}"] = ""
        domains.append(f"provider: efa\n    fabric: efa\n    domain: {name}-rdm\n    version: 203.10\n")
        domains.append("    type: FI_EP_RDM\n    protocol: FI_PROTO_EFA\n")
    tree.command("fi_info -p efa -t FI_EP_RDM", "".join(domains))
    tree.command("fi_info --version", "fi_info: 2.4.0amzn1.0\nlibfabric: 2.4.0amzn1.0\nlibfabric api: 2.4\n")
    tree.files |= {
        "/sys/module/efa/version": f"{EFA_DRIVER}\n",
        "/sys/module/gdrdrv/version": "2.5.2\n",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "5128\n",
        "/opt/amazon/efa_installed_packages": "# EFA installer version: 1.47.0\n# Debug packages installed: no\n"
        "# Packages installed:\nefa-config_1.18_all efa-profile_1.7_all libfabric-aws-bin_2.4.0amzn1.0_amd64 "
        "libnccl-ofi_1.18.0-1_amd64 efa_3.0.0-1.amzn1_amd64\n",
    }
    tree.files["/proc/modules"] += (
        "efa 98304 0 - Live 0x0\nib_uverbs 200704 1 efa, Live 0x0\nib_core 507904 2 efa,ib_uverbs, Live 0x0\n"
    )


def _neuron(tree: Tree) -> None:
    devices = []
    count = tree.profile.neuron or 0
    for number in range(count):
        tree.files[f"/dev/neuron{number}"] = ""
        hardware = f"/sys/devices/virtual/neuron_device/neuron{number}/stats/hardware"
        tree.files |= {f"{hardware}/{kind}": "0\n" for kind in ("mem_ecc_uncorrected", "sram_ecc_uncorrected")}
        row, column = divmod(number, 4)
        torus = [
            (row + 1) % 4 * 4 + column,
            (row - 1) % 4 * 4 + column,
            row * 4 + (column + 1) % 4,
            row * 4 + (column - 1) % 4,
        ]
        device = {"neuron_device": number, "bdf": f"{0x10 + number:02x}:1c.0", "connected_to": torus, "nc_count": 2}
        devices.append({**device, "memory_size": 34359738368, "neuron_processes": []})
    tree.command("neuron-ls -j", json.dumps(devices, indent=4))
    tree.files["/sys/module/neuron/version"] = "2.24.7.0\n"
    tree.files["/proc/modules"] += "neuron 430080 0 - Live 0x0\n"
