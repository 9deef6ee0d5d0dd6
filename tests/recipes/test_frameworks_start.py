"""What a framework's own program refuses at its start, or does with the wrong weights: read in the rendered job, and
with the programs of ours that start it run for real."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from resolving import resolution, resolved
from trainwright.catalog.families import family_of
from trainwright.errors import UserError
from trainwright.images.locks import pins, torches
from trainwright.jobs.frameworks import FrameworkLaunch, framework_launch
from trainwright.recipes.framework import FOLDER as SCRIPTS
from trainwright.recipes.framework import HELPER, framework, script_text
from trainwright.recipes.load import foreign_names, recipe
from trainwright.recipes.model import Foreign

FOLDER = Path("/fsx/runs/r-1")
PACKAGES = {"PIL": "pillow", "yaml": "pyyaml", "huggingface_hub": "huggingface-hub"}  # module -> package


def launched(recipe: str, nodes: int, instance: str = "p5.48xlarge", **job: Any) -> FrameworkLaunch:
    return framework_launch(resolved({"recipe": recipe, **job}, nodes * 8, instance), FOLDER, FOLDER / "code")


@pytest.mark.parametrize(
    ("recipe", "nodes", "size"),
    [("nemo2-b200-llama3-70b-fsdp", 8, None), ("nemo2-b200-mixtral-8x7b", 8, None), ("nemo2-b200-llama3-70b", 8, 5)],
)
def test_nemo_2_runs_without_the_virtual_stages_of_its_recipes(recipe: str, nodes: int, size: int | None) -> None:
    file = json.loads(launched(recipe, nodes, "p6-b200.48xlarge").files["nemo2.json"])
    assert file["set"]["trainer"]["strategy"]["virtual_pipeline_model_parallel_size"] == size


def test_fairseq_keeps_no_checkpoint_per_epoch_and_says_which_16_bits(tmp_path: Path) -> None:
    words = launched("fairseq-roberta-large", 2, "p4d.24xlarge").command
    assert "--no-epoch-checkpoints" in words
    assert "--fp16" in words
    asked = resolution({"recipe": "fairseq-roberta-large", "precision": "bf16"}, 16, "p4d.24xlarge")
    assert [one.what for one in asked.problems] == ["fairseq has no word for precision 'bf16'"]
    (tmp_path / "ours.yaml").write_text("title: ours\nmodel: llama3.1-8b\nsteps: 1000\nprecision: fp16\n")
    with pytest.raises(UserError, match="our trainer has no fp16"):
        recipe(str(tmp_path / "ours.yaml"))


def modules_of(script: str) -> set[str]:
    """What a program of ours imports of others, anywhere in it."""
    tree = ast.parse(script_text(script))
    names = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    first = {name.partition(".")[0] for name in names}
    ours = {path.stem for path in SCRIPTS.glob("*.py")} | {HELPER.removesuffix(".py")}
    return first - ours - sys.stdlib_module_names


def test_images_hold_what_our_programs_import() -> None:
    for name in foreign_names():
        trainer = recipe(name).trainer
        assert isinstance(trainer, Foreign)
        assert trainer.known is not None
        image = trainer.known.image or trainer.framework or ""
        scripts = [one for one in (*trainer.known.scripts, *trainer.scripts) if one != HELPER]
        if not scripts or family_of(image).nccl != "wheel":
            continue  # the bases of others bring their own packages
        wanted = {PACKAGES.get(module, module) for script in scripts for module in modules_of(script)}
        wanted |= {"torchvision"} if "pillow" in wanted else set()  # transformers reads images by it
        packages = family_of(image).framework(image)
        for torch in torches(packages):
            assert wanted - {package.lower() for package, _ in pins(packages, torch)} == set(), name


# Reads its file as picotron's train.py does, with the same keys, imports and folder.
PICOTRON = """
import json, os, sys
import wandb
from flash_attn.flash_attn_interface import flash_attn_func
from flash_attn.layers.rotary import apply_rotary_emb
from flash_attn.ops.triton.layer_norm import layer_norm_fn
from importlib.util import find_spec
assert sys.argv[1] == "--config" and find_spec("flash_attn").loader is None
config = json.load(open(sys.argv[2]))
if config["environment"]["HF_TOKEN"] is None: raise ValueError("HF_TOKEN is not set")
assert config["environment"]["FLASH_ATTEN"] == "0"
assert config["training"]["max_tokens"] is None and config["dataset"]["subset_name"] is None
weights = open(f"./hf_model_safetensors/{config['model']['name']}/model.safetensors").read()
print(json.dumps([config["dataset"]["num_workers"], config["checkpoint"]["load_path"], weights]))
"""
HUB = """
from pathlib import Path
def snapshot_download(name, allow_patterns):
    assert name == "HuggingFaceTB/SmolLM-1.7B" and "*.safetensors" in allow_patterns
    return str(Path(__file__).parent / "snapshot")
"""


def test_picotron_finds_what_it_reads_at_its_start(tmp_path: Path) -> None:
    config = json.loads(launched("picotron-smollm-1.7b", 1, workers=3).files["picotron.json"])
    assert "num_workers" in json.loads(launched("picotron-smollm-1.7b", 1).files["picotron.json"])["dataset"]
    config["checkpoint"]["save_dir"] = str(tmp_path / "checkpoints")
    for part in ("tp0", "tp1"):
        weights = tmp_path / "checkpoints" / "200" / f"weights_{part}.pth"
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.write_text("")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.safetensors").write_text("weights")
    texts = {"train.py": PICOTRON, "huggingface_hub.py": HUB, "wandb.py": "", "picotron.json": json.dumps(config)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    words = [sys.executable, SCRIPTS / "picotron_train.py", tmp_path / "train.py", tmp_path / "picotron.json"]
    here = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(words, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [3, str(tmp_path / "checkpoints" / "200"), "weights"]
    installed = dict(pins(family_of("picotron").framework("picotron"), "2.9.1"))
    assert "wandb" in installed


@pytest.mark.parametrize("size", ["1b", "7b-debug"])
def test_llm_foundry_needs_nothing_that_its_image_lacks(size: str) -> None:
    known = framework("llm-foundry")
    launch = launched(f"llm-foundry-mpt-{size}", 1, workers=2)
    file = yaml.safe_load(launch.files["llm-foundry.yaml"])
    image = family_of("llm-foundry").framework("llm-foundry")
    installed = dict(pins(image, image.torch))
    assert "llm-foundry" in installed
    assert "flash-attn" not in installed
    assert (file["model"]["attn_config"]["attn_impl"], file["model"]["loss_fn"]) == ("torch", "torch_crossentropy")
    assert file["train_loader"]["num_workers"] == 2
    usual = yaml.safe_load(launched(f"llm-foundry-mpt-{size}", 1).files["llm-foundry.yaml"])
    assert usual["train_loader"]["num_workers"] > 0  # it is read without a default
    assert known.container is None  # the images of its authors hold what it needs and not llm-foundry itself
    assert known.prepare[0] == "llmfoundry"


def test_a_fine_tuning_starts_from_its_weights_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    launch = launched("megatron-deepspeed-llama2-7b-finetune", 1)
    assert "--finetune" not in launch.command
    (tmp_path / "megatron_finetune.py").write_text(launch.files["megatron_finetune.py"])
    (tmp_path / "train.py").write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    at = launch.command.index("/opt/megatron-deepspeed/finetune_llama.py")
    assert launch.command[at - 1] == f"{FOLDER}/code/megatron_finetune.py"
    assert launch.command[at + 1].endswith("/models/llama2-7b-megads-tp4-pp2")
    weights, own = tmp_path / "weights", tmp_path / "checkpoints"
    rest = [word.replace(f"{FOLDER}/checkpoints", str(own)) for word in launch.command[at + 2 :]]

    def started() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, tmp_path / "megatron_finetune.py", tmp_path / "train.py", weights, *rest]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    first = started()
    assert first.returncode == 1
    assert f"no weights in {weights}" in first.stderr  # and not random ones
    for folder in (weights, own):
        folder.mkdir()
        (folder / "latest").write_text("global_step0")
        words = json.loads(started().stdout)
        assert words[words.index("--load") + 1] == str(folder)
        assert words[words.index("--save") + 1] == str(own)
        assert ("--finetune" in words) == (folder == weights)


def test_verl_shares_layers_and_answers_as_its_engines_can() -> None:
    stage = "++actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_{}_pipeline_stage"
    words = launched("verl-qwen3-235b-grpo", 4, "p5en.48xlarge").command
    assert {f"{stage.format('first')}=11", f"{stage.format('last')}=11"} <= set(words)  # 94 layers: 6 x 12 between
    even = launched("verl-qwen3-235b-grpo", 4, "p5en.48xlarge", parallel={"pp": 2, "tp": 4, "ep": 4, "replicate": 4})
    assert not [word for word in even.command if "pipeline_stage" in word]
    assert "ppo_mini_batch_size=128" in " ".join(launched("verl-qwen3-8b-grpo", 4).command)
    assert launched("verl-qwen3-8b-grpo", 8)
    prompts = "actor_rollout_ref.actor.ppo_mini_batch_size"

    def problem(*args: str, recipe: str = "verl-qwen3-8b-grpo", **job: Any) -> str:
        [one] = resolution({"recipe": recipe, "args": [*args], **job}, 32, "p5en.48xlarge").problems
        return one.what

    assert problem(f"{prompts}=16") == "16 prompts with 5 answers cannot be shared by 32 data ranks"
    assert problem(f"{prompts}=96") == "1024 prompts per step are not whole updates of 96"
    assert problem(batch={"micro_batch": 8}) == "20 answers of a data rank are not whole micro-batches of 8"
    stages = {"pp": 8, "tp": 4, "ep": 4, "virtual_stages": 2}
    assert problem(recipe="verl-qwen3-235b-grpo", parallel=stages).endswith("split into 16 (pp x virtual_stages)")
    debug = resolved({"recipe": "verl-qwen3-8b-grpo-debug"})
    assert f"{prompts}=8" in framework_launch(debug, FOLDER, FOLDER).command  # a step of 8 prompts
