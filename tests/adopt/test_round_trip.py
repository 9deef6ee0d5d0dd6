"""Adopting a launcher and rendering the job again keeps nodes, tasks, GPUs, environment, command and time."""

from __future__ import annotations

import json
import random
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.adopt.files import adopt
from trainwright.adopt.write import as_data, spec_text
from trainwright.cli.main import cli
from trainwright.errors import UserError

FILES = Path(__file__).parent / "files"


@dataclass
class Expected:
    """What has to be in the spec, and again in the rendered job."""

    nodes: int
    processes: int
    gpus: int
    launcher: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    time: str | None = None
    rendered: list[str] = field(default_factory=list)


MEGATRON = [
    "python", "/workspace/Megatron-LM/pretrain_gpt.py", "--tensor-model-parallel-size", "4", "--num-layers", "36",
    "--hidden-size", "4096", "--seq-length", "2048", "--data-path", "/fsx/gpt2/my-gpt2_text_document", "--split",
    "98,2,0", "--fp16",
]  # fmt: skip
CASES: dict[str, Expected] = {
    "fsdp-arrays.sbatch": Expected(
        4, 8, 8, "torchrun",
        ["python", "/fsx/code/train.py", "--hidden_width=4096", "--num_layers=32", "--dataset=allenai/c4",
         "--tokenizer", "org/tokenizer name"],
        {"FI_PROVIDER": "efa", "HF_HUB_ETAG_TIMEOUT": "60", "FSX_MOUNT": "/fsx/code:/fsx"}, "36h",
        ["--container-image=/fsx/images/fsdp.sqsh", "--time=1-12:00:00", "--nproc-per-node=8", "--exclusive"],
    ),
    "megatron-defaults.sbatch": Expected(
        2, 8, 8, "torchrun", MEGATRON, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "4h",
        ["--partition=p5", "--account=research", "--container-mounts=/fsx:/fsx"],
    ),
    "one-task-per-gpu.sbatch": Expected(
        2, 8, 8, "srun",
        ["bash", "-c", 'exec python3 /workspace/train_esm2.py --train-cluster-path "$(find $DATA_HOME_DIR -type d '
         '-name "*untar*" -print -quit)/train.parquet" --precision=bf16-mixed --num-gpus 8 --num-nodes 2 --result-dir '
         "/fsx/bio"],
        {"FI_EFA_USE_HUGE_PAGE": "0", "DATA_HOME_DIR": "/fsx/bio"}, "90min",
        ["--ntasks-per-node=8", "--cpus-per-task=12", "--time=01:30:00"],
    ),
    "composer-loop.sbatch": Expected(
        2, 1, 8, "plain",
        ["bash", "-c", 'exec composer --world_size 16 --nproc 8 --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" '
         '--master_port "$MASTER_PORT" --verbose /llm-foundry/scripts/train/train.py '
         "/llm-foundry/scripts/train/yamls/pretrain/mpt-7b.yaml max_duration=3ba"],
        rendered=["--ntasks-per-node=1", "--gres=gpu:8", "--container-mounts=/fsx:/fsx,/apps:/apps"],
    ),
    "accelerate-string.sbatch": Expected(
        8, 1, 8, "plain",
        ["bash", "-c", "exec accelerate launch --config_file /grpo/deepspeed_zero3.yaml --num_processes 64 "
         '--num_machines 8 --rdzv_backend c10d --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" '
         '--machine_rank "$NODE_RANK" /grpo/train.py --model org/model --learning_rate 1e-5'],
        {"FI_PROVIDER": "efa", "NCCL_BUFFSIZE": "8388608"}, "8min", ["--container-mounts=.:/grpo,/fsx:/fsx"],
    ),
    "heredoc-venv.sbatch": Expected(
        2, 4, 4, "torchrun",
        ["bash", "-c", "module load cuda/12.4; source /fsx/venv/bin/activate; export "
         'LD_LIBRARY_PATH="/opt/amazon/ofi-nccl/lib:$LD_LIBRARY_PATH"; exec "$@"', "rank", "python", "train.py",
         "--config", "config.json"],
        {"LOGLEVEL": "INFO"}, "30min", ["--no-requeue", "--account=team", "--qos=high", "--partition=gpu"],
    ),
    "bash-c.sbatch": Expected(
        4, 8, 8, "torchrun",
        ["bash", "-c", 'cd /fsx/titan; exec "$@"', "rank", "python", "-m", "torchtitan.train", "--job.config_file",
         "./llama3_8b.toml"],
        {}, "2d", ["--container-image=nvcr.io#nvidia/pytorch:25.06-py3", "--time=2-00:00:00"],
    ),
    "mpirun-nccl.sbatch": Expected(
        2, 8, 8, "srun", ["python", "train_mpi.py", "--batch", "64"], {"FI_PROVIDER": "efa", "NCCL_DEBUG": "INFO"},
        rendered=["--ntasks-per-node=8", "--constraint=p4d"],
    ),
    "wrapper.sbatch": Expected(
        4, 8, 8, "srun", ["/bin/bash", "run_paxml.sh", "--steps", "10"],
        {"XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_graph_level=0"},
        rendered=["--nodes=4", "--ntasks-per-node=8"],
    ),
    "neuron.sbatch": Expected(
        16, 32, 0, "torchrun",
        ["bash", "-c", 'ulimit -n 65535; cd /fsx/neuronx-distributed/examples; exec "$@"', "rank", "python",
         "run_llama_nxd.py", "--train_batch_size", "512", "--use_zero1_optimizer", "1"],
        {"NEURON_CC_FLAGS": "--model-type transformer --cache_dir=/fsx/cache"}, None, ["--cpus-per-task=128"],
    ),
    "ddp-cpu.sbatch": Expected(
        2, 4, 0, "torchrun", ["bash", "-c", 'exec python "$(dirname "$PWD")/ddp.py" 5000000 10'],
        {"NVIDIA_VISIBLE_DEVICES": "void"}, "15min", ["--container-image=./pytorch.sqsh"],
    ),
    "deepspeed.sbatch": Expected(
        1, 1, 8, "plain",
        ["bash", "-c", 'exec deepspeed --num_nodes 1 --num_gpus 8 --master_addr "$MASTER_ADDR" finetune_llama.py '
         "--tensor-model-parallel-size 2 --lr 2e-5 --deepspeed_config ./ds_config.json"],
        rendered=["--qos=normal", "--reservation=blocks"],
    ),
    "branches.sbatch": Expected(
        2, 8, 8, "torchrun",
        ["bash", "-c", 'BATCH=32; exec python /fsx/train.py --steps 1000 --batch "$BATCH" --out "$OUT_FOLDER"'],
        {"GPUS_PER_NODE": "8"}, None, ["--container-image=/fsx/pytorch.sqsh", "--container-mounts=/fsx:/fsx"],
    ),
    "from-variable.sbatch": Expected(
        2, 4, 4, "torchrun",
        ["bash", "-c", 'source ./.env; exec "$@"', "rank", "python", "/fsx/train.py", "--lr", "1e-4"],
        rendered=["--nproc-per-node=4"],
    ),
    "heredoc-step.sbatch": Expected(
        2, 8, 8, "torchrun", ["bash", "-c", 'cd /fsx/app; exec "$@"', "rank", "python", "train.py", "--b", "2"], {},
        "10h",
        ["--container-mounts=/fsx:/fsx,/home:/home", "--gres=gpu:8"],
    ),
    "appended-arrays.sbatch": Expected(
        2, 8, 8, "torchrun",
        ["python", "/workspace/lm/pretrain_gpt.py", "--num-layers", "32", "--hidden-size", "4096",
         "--tensor-model-parallel-size", "1", "--swiglu", "--normalization", "RMSNorm", "--seq-length", "4096",
         "--global-batch-size", "32", "--split", "100,0,0", "--lr", "6.0e-5", "--data-path",
         "/fsx/llama2/text_document", "--fp16"],
        {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "FI_PROVIDER": "efa"}, None,
        ["--partition=gpu-p5", "--container-mounts=/fsx/check:/fsx", "SLURM_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / 1))"],
    ),
    "fp8-bash-lc.sbatch": Expected(
        6, 4, 4, "srun", ["bash", "-lc", 'cd /opt/lm; exec "$@"', "rank", "./train.sh"],
        {"RECIPE": "mxfp8", "SIZE": "8b"}, None, ["--ntasks-per-node=4", "--exclusive"],
    ),
    "worker-function.sbatch": Expected(
        2, 1, 8, "plain",
        ["bash", "-c", 'exec python /src/worker.py "$NODE_RANK" $( scontrol show hostnames $SLURM_JOB_NODELIST )'],
        {"FI_PROVIDER": "efa"}, None, ["--container-image=/apps/tf.sqsh", "--container-mounts=/fsx:/fsx,/apps:/apps"],
    ),
    "maxtext.sbatch": Expected(
        2, 1, 0, "srun",
        ["bash", "-c", "exec python3 MaxText/train.py MaxText/configs/base.yml run_name=base-synthetic "
         '"base_output_directory=$DATA_PATH/maxtext-outputs" dataset_type=synthetic steps=10'],
        {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.7"}, None, ["--ntasks-per-node=1"],
    ),
    "escaped-dollars.sbatch": Expected(
        4, 8, 8, "torchrun",
        ["python", "-m", "torchtitan.train", "--job.config_file", "./configs/llama3_8b.toml"],
        {"LOGLEVEL": "INFO", "NCCL_BUFFSIZE": "2097152"}, "12h", ["--cpus-per-task=96", "--gres=gpu:8"],
    ),
    "apptainer.sbatch": Expected(
        2, 4, 4, "srun",
        ["bash", "-c", 'exec apptainer exec --nv --bind /scratch:/scratch "$SCRATCH/images/train.sif" python -u '
         "train.py --config configs/base.yaml trainer.devices=4 trainer.num_nodes=2"],
        {"SLURM_CPU_BIND": "none"}, "8h", ["--cpus-per-task=18", "--constraint='a100|h100'"],
    ),
    "single-node-no-srun.sbatch": Expected(
        1, 8, 8, "torchrun",
        ["bash", "-c", '. /fsx/venvs/vit/bin/activate; cd "$SLURM_SUBMIT_DIR"; exec python main.py --lr '
         '"${LR[$SLURM_ARRAY_TASK_ID]}" --data-path \'/fsx/imagenet 1k\' --output_dir "/fsx/out/$SLURM_ARRAY_TASK_ID"'],
        {}, "3d", ["--array=0-3%1", "--time=3-00:00:00"],
    ),
    "short-options.sbatch": Expected(
        2, 4, 4, "torchrun",
        ["bash", "-c", 'module purge; module load cuda/12.4 nccl; eval "$(conda shell.bash hook)"; conda activate '
         'bert; exec "$@"', "rank", "python", "run_glue.py", "--deepspeed", "ds_config.json", "--lr", "2e-5"],
        {}, "150min", ["--account=proj42", "--partition=gpu", "--gres=gpu:4", "--cpus-per-task=48"],
    ),
    "accelerate-launcher-var.sbatch": Expected(
        4, 1, 8, "plain",
        ["bash", "-c", "source ~/.bashrc; exec accelerate launch --config_file fsdp.yaml --num_processes 32 "
         '--num_machines 4 --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" --machine_rank '
         '"$NODE_RANK" --role "$(hostname -s|tr -dc \'0-9\'):" --tee 3 sft.py --model_name org/model --max_steps 100'],
        {}, None, ["--gres=gpu:8", "--exclusive"],
    ),
    "unset-deepspeed.sbatch": Expected(
        1, 1, 0, "plain",
        ["bash", "-c", 'exec deepspeed --num_nodes "$NUM_NODES" --num_gpus "$NUM_GPUS_PER_NODE" --master_addr '
         '"$MASTER_ADDR" "$PWD/../lm/finetune_llama.py" --tensor-model-parallel-size 2 --lr 2e-5 --deepspeed'],
        {}, None, ["--container-image=/fsx/apps/deepspeed.sqsh"],
    ),
    "trainjob.yaml": Expected(
        3, 4, 4, "torchrun", ["python", "/app/train.py", "--epochs", "2"], {"LOGLEVEL": "INFO"}, None,
        ["kind: TrainJob", "numNodes: 3", "numProcPerNode: 4"],
    ),
    "pytorchjob.yaml": Expected(
        4, 8, 8, "torchrun", ["python", "/fsdp/train.py", "--num_layers=32", "--dataset=allenai/c4"],
        {"NCCL_DEBUG": "INFO", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, "2h",
        ["kind: PyTorchJob", "activeDeadlineSeconds: 7200", "claimName: fsx-claim", "nvidia.com/gpu: '8'",
         "namespace: training"],
    ),
    "mpijob.yaml": Expected(
        2, 8, 8, "srun", ["python", "/opt/train.py", "--epochs", "3"], {"NCCL_DEBUG": "INFO"}, None,
        ["kind: MPIJob", "slotsPerWorker: 8", "claimName: data"],
    ),
    "jobset.yaml": Expected(
        2, 8, 8, "torchrun",
        ["bash", "-c", 'cd /fsx/titan; export PYTHONPATH="/fsx/titan:$PYTHONPATH"; exec "$@"', "rank", "python", "-m",
         "torchtitan.train", "--job.config_file", "llama3_8b.toml"],
        {"LOGLEVEL": "INFO"}, None, ["kind: JobSet", "parallelism: 2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_spec_says_what_the_launcher_said(name: str) -> None:
    expected, spec = CASES[name], adopt([str(FILES / name)]).spec
    job, queue = spec["jobs"][0], spec["queues"][0]
    gpus = queue.get("gpus", 8 if queue.get("instance") == "p5.48xlarge" else 0)
    assert (job["nodes"], job["processes"], gpus) == (expected.nodes, expected.processes, expected.gpus)
    assert (job["launcher"], job["command"]) == (expected.launcher, expected.command)
    assert {key: job.get("env", {}).get(key) for key in expected.env} == expected.env
    assert job.get("time") == expected.time


@pytest.mark.parametrize("name", CASES)
def test_the_rendered_job_keeps_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    expected, spec = CASES[name], tmp_path / "spec.yaml"
    spec.write_text(spec_text(adopt([str(FILES / name)])))
    done = CliRunner().invoke(cli, ["submit", str(spec), "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    text = done.stdout
    missing = [line for line in expected.rendered if line not in text]
    assert not missing, text
    if name.endswith(".sbatch"):
        assert f"--nodes={expected.nodes}" in text
        flat = text.replace(" \\\n  ", " ")
        assert shlex.join(expected.command) in flat
        for key, value in expected.env.items():
            assert f"export {key}={shlex.quote(value)}  #" in text
        assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    else:
        rendered = yaml.safe_load(text)
        words = json.dumps(rendered)
        assert all(json.dumps(word)[1:-1] in words for word in expected.command if word != "python")
        assert all(json.dumps(value)[1:-1] in words for value in expected.env.values())


WORDS = ("--lr", "1e-4", "a b", "it's", '"q"', "#x", "$HOME is not read", "--x=y z", "*.py", "a;b", "é", "\\\\n")


def random_launcher(chance: random.Random) -> tuple[str, Expected]:
    """A launcher in one of the usual styles, and what it says."""
    nodes, each = chance.randint(1, 8), chance.choice((1, 4, 8))
    words = chance.choices(WORDS, k=chance.randint(0, 6))
    env = {f"NAME_{n}": chance.choice(WORDS) for n in range(chance.randint(0, 3))}
    time = chance.choice((None, 30, 90))
    style = chance.choice(("array", "appended", "inline", "module"))
    lines = ["#!/bin/bash", f"#SBATCH --nodes={nodes}", f"#SBATCH --gres=gpu:{each}", "#SBATCH --cpus-per-task=8"]
    lines += [f"#SBATCH --time={time}"] if time else []
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    quoted = [shlex.quote(word) for word in words]
    half = len(words) // 2
    arrays = {
        "array": ["declare -a ARGS=(", *(f"    {word}" for word in quoted), ")"],
        "appended": [f"ARGS=({' '.join(quoted[:half])})", f"ARGS+=({' '.join(quoted[half:])})"],
    }
    lines += arrays.get(style, [])
    given = '"${ARGS[@]}"' if style in arrays else " ".join(quoted)
    program = "-m pkg.train" if style == "module" else "train.py"
    lines.append(f"srun -l torchrun --nnodes=$SLURM_NNODES --nproc_per_node={each} {program} {given} 2>&1 | tee log")
    limit = {None: None, 30: "30min", 90: "90min"}[time]
    return "\n".join(lines), Expected(nodes, each, each, "torchrun", ["python", *program.split(), *words], env, limit)


@pytest.mark.parametrize("seed", range(40))
def test_a_launcher_by_chance_keeps_what_it_says(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, expected = random_launcher(random.Random(seed))
    (tmp_path / "job.sbatch").write_text(text)
    spec = adopt([str(tmp_path / "job.sbatch")]).spec
    job, queue = spec["jobs"][0], spec["queues"][0]
    assert (job["nodes"], job["processes"], queue["gpus"]) == (expected.nodes, expected.processes, expected.gpus), text
    assert (job["launcher"], job["command"]) == (expected.launcher, expected.command), text
    assert (job.get("env", {}), job.get("time")) == (expected.env, expected.time), text
    if seed % 8 == 0:
        monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
        (tmp_path / "spec.yaml").write_text(spec_text(adopt([str(tmp_path / "job.sbatch")])))
        done = CliRunner().invoke(cli, ["submit", str(tmp_path / "spec.yaml"), "--dry-run"], catch_exceptions=False)
        assert shlex.join(expected.command) in done.stdout.replace(" \\\n  ", " ")


def test_the_shell_in_a_command_runs_as_the_script_did(tmp_path: Path) -> None:
    """The words of `bash -c` are for a real shell: run them."""
    script = tmp_path / "run.sbatch"
    script.write_text(
        '#!/bin/bash\n#SBATCH --nodes=1\nexport GREETING="it\'s $HOME"\nNAME=$(basename "$HOME")\n'
        "srun python3 -c 'import sys; print(sys.argv[1:])' --name \"$NAME of $HOME\" --quote 'a\"b $c' --home ${HOME}\n"
    )
    command = adopt([str(script)]).spec["jobs"][0]["command"]
    done = subprocess.run(
        command, env={"HOME": "/h/me", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(["--name", "me of /h/me", "--quote", 'a"b $c', "--home", "/h/me"])


def test_every_directive_is_accounted_for() -> None:
    """Nothing of the script is dropped in silence."""
    for name in CASES:
        if not name.endswith(".sbatch"):
            continue
        adoption = adopt([str(FILES / name)])
        lines = {
            number
            for number, line in enumerate((FILES / name).read_text().splitlines(), start=1)
            if line.startswith("#SBATCH") and "ntasks" not in line and "gres" not in line
        }
        told = {
            int(n.where.rsplit(":", 1)[1])
            for n in adoption.carried + adoption.dropped + adoption.assumed
            if ":" in n.where
        }
        assert lines <= told, (name, lines - told)


def test_what_only_the_cluster_knows_is_named() -> None:
    adoption = adopt([str(FILES / "branches.sbatch")])
    told = {note.what: note.why for note in adoption.assumed}
    assert "a branch sets it" in told["BATCH=32"]
    assert "environment" in told["$OUT_FOLDER"]
    assert any(what.startswith("if [ ! -z $CONTAINER_IMAGE ]: true") for what in told)
    assert any(what.endswith('"/opt/sagemaker_cluster" ]: false') for what in told)
    dropped = [note.what for note in adoption.dropped]
    assert any("numactl" in what for what in dropped)
    assert any("--max_restarts" in what for what in dropped)


def test_a_template_takes_values() -> None:
    path = str(FILES / "pytorchjob.yaml-template")
    asked = [note.what for note in adopt([path]).assumed]
    assert "${DATA_PATH}" in asked
    values = {"NUM_NODES": "3", "GPU_PER_NODE": "8", "REPO_URI": "img:1", "FI_PROVIDER": "efa", "NUM_LAYERS": "36"}
    adoption = adopt([path], {**values, "DATA_PATH": "/fsx"})
    job = adoption.spec["jobs"][0]
    assert (job["nodes"], job["processes"], job["container"]) == (3, 8, "img:1")
    assert job["command"][2:] == ["--num-layers=36", "--data-path=/fsx/gpt2", "--fp16"]
    assert not any("template" in note.why for note in adoption.assumed)


def test_a_cluster_and_a_job_make_one_spec(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(spec_text(adopt([str(FILES / "cluster.yaml"), str(FILES / "megatron-defaults.sbatch")])))
    done = CliRunner().invoke(cli, ["submit", str(spec), "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "--partition=p5" in done.stdout
    data = yaml.safe_load(spec.read_text())
    assert data["queues"][0]["capacity"] == {"reservation": "cr-0123456789abcdef0"}
    assert data["storage"][0]["lustre"]["throughput"] == 250


def test_secrets_are_not_copied() -> None:
    for name in ("deepspeed.sbatch", "pytorchjob.yaml"):
        adoption = adopt([str(FILES / name)])
        assert "hf_" not in json.dumps(as_data(adoption))
        assert any("HF_TOKEN" in note.what for note in adoption.assumed)
        assert adoption.spec["jobs"][0]["env"]["HF_TOKEN"] == {"secret": {"env": "HF_TOKEN"}}


def test_the_verb_prints_spec_and_notes(tmp_path: Path) -> None:
    out = tmp_path / "spec.yaml"
    run = CliRunner()
    done = run.invoke(cli, ["adopt", str(FILES / "neuron.sbatch"), "-o", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout.strip() == str(out)
    assert "dropped:" in done.stderr
    assert yaml.safe_load(out.read_text())["platform"] == "slurm"
    done = run.invoke(cli, ["adopt", str(FILES / "neuron.sbatch"), "--json"], catch_exceptions=False)
    data = json.loads(done.stdout)
    assert set(data) == {"spec", "carried", "assumed", "dropped"}
    with pytest.raises(UserError, match="is there already"):
        run.invoke(cli, ["adopt", str(FILES / "neuron.sbatch"), "-o", str(out)], catch_exceptions=False)


VALUES = {
    "RUN": "lora", "IMAGE_URI": "img:1", "REPO_URI": "img:1", "NUM_NODES": "2", "EPOCHS": "1", "GPU_PER_NODE": "8",
    "EFA_PER_NODE": "32", "INSTANCE_TYPE": "p5.48xlarge", "FSX_CLAIM": "fsx", "TENSOR_PARALLEL": "8",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "processes", "instance", "command", "env"),
    [
        ("hyperpod-job.yaml-template", 1, "g5.2xlarge",
         ["python", "/workspace/train_lora.py", "--model_id=org/model", "--num_train_epochs=1"],
         {"TOKENIZERS_PARALLELISM": "false", "HF_HOME": "/tmp/hf"}),
        ("etcd-configmap.yaml-template", 8, "p5.48xlarge", ["python", "/workspace/conf/sft.py", "--max_steps 100"],
         {"LOGLEVEL": "INFO", "TENSOR_PARALLEL": "8", "FI_PROVIDER": "efa"}),
    ],
)  # fmt: skip
def test_a_filled_in_template(
    name: str, processes: int, instance: str, command: list[str], env: dict[str, str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    adoption = adopt([str(FILES / name)], VALUES)
    job, queue = adoption.spec["jobs"][0], adoption.spec["queues"][0]
    assert (job["nodes"], job["processes"], queue["instance"]) == (2, processes, instance)
    assert (job["launcher"], job["command"], job["env"]) == ("torchrun", command, env)
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    (tmp_path / "spec.yaml").write_text(spec_text(adoption))
    done = CliRunner().invoke(cli, ["submit", str(tmp_path / "spec.yaml"), "--dry-run"], catch_exceptions=False)
    assert f"--nproc-per-node={processes}" in done.stdout


def test_what_stands_beside_a_job_is_accounted_for() -> None:
    dropped = {note.what for note in adopt([str(FILES / "etcd-configmap.yaml-template")], VALUES).dropped}
    assert {"Service etcd", "Deployment etcd", "toleration workload", "volume /workspace/conf (configMap)"} <= dropped


def test_a_queue_label_of_kueue_is_carried_over(tmp_path: Path) -> None:
    text = (
        (FILES / "pytorchjob.yaml")
        .read_text()
        .replace("metadata:", "metadata:\n  labels: {kueue.x-k8s.io/queue-name: team-a}", 1)
    )
    (tmp_path / "job.yaml").write_text(text)
    assert adopt([str(tmp_path / "job.yaml")]).spec["kubernetes"]["kueue"] == "team-a"


def test_a_file_that_the_script_writes_is_named() -> None:
    adoption = adopt([str(FILES / "short-options.sbatch")])
    assert any(note.what == "ds_config.json" and "before `submit`" in note.why for note in adoption.dropped)


def test_a_program_beside_the_script_is_found_there(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --exclusive\nsrun -l exec_torchrun.sh\n")
    assert adopt([str(script)]).spec["jobs"][0]["command"] == ["exec_torchrun.sh"]
    (tmp_path / "exec_torchrun.sh").touch()
    assert adopt([str(script)]).spec["jobs"][0]["command"] == ["./exec_torchrun.sh"]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("a: 1\n")
    with pytest.raises(UserError, match="not a file that can be adopted"):
        adopt([str(path)])


def test_damaged_files_never_fail(tmp_path: Path) -> None:
    """Whatever a file holds, the answer is a spec or an error with a fix, never a traceback."""
    source = random.Random(0)
    for path in sorted(FILES.iterdir()):
        text = path.read_text()
        for _ in range(25):
            lines = text.split("\n")
            for _ in range(source.randrange(1, 6)):
                at = source.randrange(len(lines))
                change = source.choice(["drop", "cut", "swap", "noise"])
                if change == "drop":
                    lines[at] = ""
                elif change == "cut":
                    lines[at] = lines[at][: source.randrange(len(lines[at]) + 1)]
                elif change == "swap":
                    lines[at] = source.choice(lines)
                else:
                    lines[at] += source.choice(
                        ["'", '"', "$(", "${", "`", "\\", "}", ")", "]", "&&", "<<EOF", ": [", "\x00"]
                    )
            damaged = tmp_path / path.name
            damaged.write_text("\n".join(lines))
            try:
                as_data(adopt([str(damaged)]))
            except UserError:
                continue
