"""An image holds what the recipes of its framework import: the table of modules is compared with our programs, with the
options that the recipes pass, and with the packages that are installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

from trainwright.catalog.families import families, family
from trainwright.catalog.versions import version_set
from trainwright.images.container import MISSING, Container, dockerfile
from trainwright.recipes.framework import FOLDER, framework, frameworks
from trainwright.recipes.load import all_names, recipe

DISTRIBUTIONS = {
    "PIL": "pillow", "cv2": "opencv-python-headless", "llmfoundry": "llm-foundry", "composer": "mosaicml",
    "streaming": "mosaicml-streaming",
}  # fmt: skip
OURS = {path.stem for path in FOLDER.glob("*.py")} | {"run"}
WITHOUT_IMAGE = {"paxml", "fairseq"}


def programs() -> dict[str, set[str]]:
    """The programs of ours that run in each image."""
    per_image: dict[str, set[str]] = {}
    for name in frameworks():
        known = framework(name)
        per_image.setdefault(known.image or name, set()).update(known.scripts, known.debug.scripts)
    for name in all_names():
        trainer = recipe(name).trainer
        if trainer != "trainwright" and trainer.known is not None:
            per_image[trainer.known.image or trainer.framework].update(trainer.scripts, trainer.debug.scripts)
    return {name: scripts for name, scripts in per_image.items() if name not in WITHOUT_IMAGE}


def imported(script: str) -> set[str]:
    """The modules outside the standard library that a program imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse((FOLDER / script).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - OURS


def test_the_table_names_what_the_programs_and_recipes_import() -> None:
    images = {name: image for one in families().values() for name, image in one.frameworks.items()}
    for name, scripts in programs().items():
        needed = set().union(*(imported(script) for script in scripts - {"run.py"}), set())
        assert needed <= set(images[name].imports), name
    for name in set(frameworks()) - WITHOUT_IMAGE:
        known = framework(name)
        options = str([part.options for part in known.parts()])
        if re.search(r"HuggingFaceTokenizer|HFTokenizer|tokenizer_type: huggingface", options):
            assert "transformers" in images[known.image or name].imports, name
    assert all(image.imports for image in images.values())


def test_what_is_imported_is_installed() -> None:
    """Of images on a base of others only what the recipes need beside the base can be judged here."""
    for one in families().values():
        for framework_image in one.frameworks.values():
            image = Container(one, framework_image, version_set(framework_image.set))
            installed = {re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower() for name, _ in image.packages()}
            if image.own_python:
                needed = {DISTRIBUTIONS.get(name, name).replace("_", "-").lower() for name in framework_image.imports}
                assert needed <= installed, (framework_image.name, needed - installed)
    for name in ("megatron-lm", "megatron-deepspeed"):  # NVIDIA's PyTorch image has neither
        packages = " ".join(family("megatron").framework(name).packages)
        assert re.search(r"transformers==4\S* sentencepiece==", packages), name


def test_a_build_without_a_module_ends() -> None:
    image = Container(family("megatron"), family("megatron").framework("megatron-lm"), version_set())
    assert dockerfile(image).count(f"RUN python3 -c '{MISSING}' torch transformer_engine transformers") == 2
    for names, code in ((["json", "no_such_module"], 1), (["json", "ast"], 0)):
        done = subprocess.run([sys.executable, "-c", MISSING, *names], capture_output=True, text=True, check=False)
        assert (done.returncode, "no_such_module" in done.stderr) == (code, bool(code))
