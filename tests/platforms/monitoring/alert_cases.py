"""For each alert: series that must fire it and series, as close to them as possible, that must not. Values are in
promtool's notation, one per minute; the alert is looked at after the time given."""

from __future__ import annotations

from typing import NamedTuple

Series = dict[str, str]


class Case(NamedTuple):
    fires: Series
    quiet: Series
    after: str = "30m"
    count: int = 1


NODE = 'cluster="c",node="a-1"'
RUN = 'cluster="c",node="head",run="r1"'


def run(name: str) -> str:
    return f"trainwright_run_{name}{{{RUN}}}"


def on_node(name: str, labels: str = "") -> str:
    return f"trainwright_{name}{{{NODE}{',' if labels else ''}{labels}}}"


BUSY = {on_node("gpu_utilization_ratio", 'gpu="0"'): "0.9x60"}
EFA_IDLE = {on_node("efa_tx_bytes_total", 'device="d",port="1"'): "5+0x60", on_node("efa_pci_devices"): "4x60"}
EFA_USED = {on_node("efa_tx_bytes_total", 'device="d",port="1"'): "5+9e10x60", on_node("efa_pci_devices"): "4x60"}
ONE_NODE = {'trainwright_slurm_job_node{cluster="c",slurm_job="7",node="a-1"}': "1x60"}
TWO_NODES = {**ONE_NODE, 'trainwright_slurm_job_node{cluster="c",slurm_job="7",node="a-2"}': "1x60"}
ACTIVE = {run("active"): "1x300"}
ENDED = {run("active"): "0x300"}

CASES: dict[str, list[Case]] = {
    "ExporterDown": [
        Case({f'up{{job="trainwright",{NODE}}}': "1x3 0x60"}, {f'up{{job="trainwright",{NODE}}}': "1x24 0x2 1x60"})
    ],
    "CollectorFailing": [
        Case(
            {on_node("exporter_collector_ok", 'collector="efa"'): "0x60"},
            {on_node("exporter_collector_ok", 'collector="efa"'): "1x60"},
        )
    ],
    "SlurmControllerDown": [
        Case({on_node("slurm_controller_up"): "1x5 0x60"}, {on_node("slurm_controller_up"): "1x29 0 1x60"})
    ],
    "NodeDrained": [
        Case(
            {  # in two partitions: one alert
                on_node("slurm_node_unusable", 'partition="x",state="drained",reason="bad card"'): "1x60",
                on_node("slurm_node_unusable", 'partition="y",state="drained",reason="bad card"'): "1x60",
            },
            {on_node("slurm_node_unusable", 'partition="x",state="drained",reason="reboot"'): "_x26 1x2 _x60"},
        )
    ],
    "QueueStuck": [
        Case(
            {
                on_node("slurm_oldest_pending_seconds", 'partition="x"'): "4000+60x60",
                on_node("slurm_nodes", 'partition="x",state="idle"'): "2x60",
            },
            {
                on_node("slurm_oldest_pending_seconds", 'partition="x"'): "4000+60x60",
                on_node("slurm_nodes", 'partition="y",state="idle"'): "2x60",  # idle nodes of another partition
            },
        )
    ],
    "JobStuck": [
        Case(
            {run("last_line_timestamp_seconds"): "0+60x5 300x60", run("line_interval_seconds"): "5x60", **ACTIVE},
            {run("last_line_timestamp_seconds"): "0+60x5 300x60", run("line_interval_seconds"): "5x60", **ENDED},
        ),
        Case(  # a run that writes a line per ten minutes
            {run("last_line_timestamp_seconds"): "0x200", run("line_interval_seconds"): "600x200", **ACTIVE},
            {run("last_line_timestamp_seconds"): "4000x200", run("line_interval_seconds"): "600x200", **ACTIVE},
            after="120m",
        ),
    ],
    "JobGpusIdle": [
        Case(
            {**ONE_NODE, on_node("gpu_utilization_ratio", 'gpu="0"'): "0x60"},
            {**ONE_NODE, on_node("gpu_utilization_ratio", 'gpu="0"'): "0x25 0.8 0x60"},  # evaluating, saving
        ),
        Case(  # by DCGM's exporter
            {**ONE_NODE, f'DCGM_FI_DEV_GPU_UTIL{{{NODE},gpu="0"}}': "0x60"},
            {**ONE_NODE, f'DCGM_FI_DEV_GPU_UTIL{{{NODE},gpu="0"}}': "70x60"},
        ),
    ],
    "LossNotFinite": [Case(ACTIVE, {**ACTIVE, run("loss"): "2.5x60"})],
    "RunBehindPrediction": [
        Case(
            {run("tokens_per_s"): "850x90", run("predicted_tokens_per_s_low"): "880x90", **ACTIVE},
            {run("tokens_per_s"): "900x90", run("predicted_tokens_per_s_low"): "880x90", **ACTIVE},
            after="60m",
        )
    ],
    "CheckpointOld": [
        Case(
            {run("last_checkpoint_timestamp_seconds"): "0x300", **ACTIVE},
            {run("last_checkpoint_timestamp_seconds"): "0x300", **ENDED},
            after="80m",
        )
    ],
    "NcclFallback": [
        Case({**BUSY, **EFA_IDLE, **TWO_NODES}, {**BUSY, **EFA_USED, **TWO_NODES}),
        Case(  # a job of one node has no need of EFA
            {**BUSY, **EFA_IDLE, on_node("host_network_transmit_bytes_total", 'interface="eth0"'): "0+3e10x60"},
            {**BUSY, **EFA_IDLE, **ONE_NODE},
        ),
    ],
    "EfaDeviceLost": [
        Case(
            {on_node("efa_device_up", 'device="d"'): "1x9 0x60", on_node("efa_device_up", 'device="e"'): "1x60"},
            {on_node("efa_device_up", 'device="d"'): "1x60", on_node("efa_port_active", 'device="d",port="1"'): "1x60"},
        ),
        Case(
            {on_node("efa_port_active", 'device="d",port="1"'): "0x60"},
            {on_node("efa_port_active", 'device="d",port="1"'): "1x60"},
        ),
    ],
    "EfaDrops": [
        Case(
            {
                on_node("efa_rx_drops_total", 'device="d",port="1"'): "0+200x60",
                on_node("efa_rx_pkts_total", 'device="d",port="1"'): "0+1000000x60",
            },
            {
                on_node("efa_rx_drops_total", 'device="d",port="1"'): "7x60",
                on_node("efa_rx_pkts_total", 'device="d",port="1"'): "0+1000000x20 0+1000000x60",  # the counter wraps
            },
        )
    ],
    "EfaPeerUnresponsive": [
        Case(
            {on_node("efa_unresponsive_remote_events_total", 'device="d",port="1"'): "0x25 3x60"},
            {on_node("efa_unresponsive_remote_events_total", 'device="d",port="1"'): "3x60"},
        )
    ],
    "GpuXid": [
        Case(  # the first Xid of its kind makes a new series
            {on_node("gpu_xid_total", 'bus="b",xid="79",action="isolate"'): "_x25 1x60"},
            {on_node("gpu_xid_total", 'bus="b",xid="79",action="isolate"'): "1x60"},  # an hour ago
        ),
        Case(
            {on_node("gpu_xid_total", 'bus="b",xid="48",action="reset"'): "1x25 2x60"},
            {on_node("gpu_xid_total", 'bus="b",xid="13",action="application"'): "1x25 2x60"},
        ),
    ],
    "GpuLost": [Case({on_node("gpu_devices"): "8x9 7x60"}, {on_node("gpu_devices"): "8x60"})],
    "GpuMemoryErrors": [
        Case(
            {on_node("gpu_ecc_uncorrected_total", 'gpu="1"'): "0x20 2x60"},
            {on_node("gpu_ecc_uncorrected_total", 'gpu="1"'): "2x60"},
        ),
        Case(
            {on_node("gpu_remapped_rows", 'gpu="1",kind="pending"'): "1x60"},
            {on_node("gpu_remapped_rows", 'gpu="1",kind="uncorrected"'): "1x60"},
        ),
    ],
    "GpuThrottled": [
        Case(
            {on_node("gpu_throttled", 'gpu="1",reason="hardware_thermal"'): "1x60"},
            {on_node("gpu_throttled", 'gpu="1",reason="power_cap"'): "1x60"},  # normal under load
        )
    ],
    "NeuronErrors": [
        Case(
            {on_node("neuron_mem_ecc_uncorrected_total", 'device="1"'): "0x25 1x60"},
            {on_node("neuron_mem_ecc_uncorrected_total", 'device="1"'): "1x60", on_node("neuron_monitor_up"): "1x60"},
        )
    ],
    "FilesystemFull": [
        Case(
            {
                on_node("filesystem_available_bytes", 'mount="/fsx",type="lustre"'): "5x60",
                on_node("filesystem_size_bytes", 'mount="/fsx",type="lustre"'): "100x60",
            },
            {
                on_node("filesystem_available_bytes", 'mount="/fsx",type="lustre"'): "15x60",
                on_node("filesystem_size_bytes", 'mount="/fsx",type="lustre"'): "100x60",
            },
        )
    ],
    "FilesystemFillsSoon": [
        Case(
            {
                on_node("filesystem_available_bytes", 'mount="/fsx",type="lustre"'): "4000-10x180",
                on_node("filesystem_size_bytes", 'mount="/fsx",type="lustre"'): "10000x180",
            },
            {
                on_node(
                    "filesystem_available_bytes", 'mount="/fsx",type="lustre"'
                ): "9000-30x180",  # nearly empty still
                on_node("filesystem_size_bytes", 'mount="/fsx",type="lustre"'): "10000x180",
            },
            after="90m",
        )
    ],
    "LustreTargetFull": [
        Case(
            {
                on_node("lustre_target_available_bytes", 'filesystem="f",target="f-OST0001"'): "2x60",
                on_node("lustre_target_size_bytes", 'filesystem="f",target="f-OST0001"'): "100x60",
            },
            {
                on_node("lustre_target_available_bytes", 'filesystem="f",target="f-OST0001"'): "20x60",
                on_node("lustre_target_size_bytes", 'filesystem="f",target="f-OST0001"'): "100x60",
            },
        )
    ],
    "FilesystemNotResponding": [
        Case(
            {on_node("filesystem_responding", 'mount="/fsx",type="lustre"'): "1x20 0x60"},
            {on_node("filesystem_responding", 'mount="/fsx",type="lustre"'): "1x60"},
        )
    ],
    "LustreDisconnected": [
        Case(
            {on_node("lustre_target_connected", 'filesystem="f",target="f-OST0001"'): "0x60"},
            {on_node("lustre_target_connected", 'filesystem="f",target="f-OST0001"'): "1x28 0 1x60"},
        )
    ],
    "NvmeDown": [
        Case(
            {on_node("nvme_live", 'controller="nvme1"'): "1x20 0x60"},
            {on_node("nvme_live", 'controller="nvme1"'): "1x60"},
        )
    ],
    "MemoryPressure": [
        Case(
            {on_node("host_pressure_seconds_total", 'resource="memory",kind="full"'): "0+20x60"},
            {on_node("host_pressure_seconds_total", 'resource="memory",kind="some"'): "0+20x60"},
        )
    ],
    "OutOfMemoryKill": [
        Case(
            {on_node("host_out_of_memory_kills_total"): "0x25 1x60"},
            {on_node("host_out_of_memory_kills_total"): "1x60"},
        )
    ],
}
