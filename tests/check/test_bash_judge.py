"""What the reader of shells takes a launcher's options for, against what bash gives it in several environments."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from trainwright.check.launches.launchers import hides_options, own_options
from trainwright.check.model import Command, File
from trainwright.check.readers.recognise import read_file

BASH = shutil.which("bash")
SHELL = """srun() { "$@"; }
torchrun() { printf 'RUN'; printf '\\x1f%s' "$@"; printf '\\n'; }
"""
ENVIRONMENTS: list[tuple[dict[str, str], list[str]]] = [
    ({}, []),
    ({"DEBUG": "1"}, ["a"]),
    ({"N": "6"}, ["b", "7"]),
    ({"G": "5", "MORE": "--tee=3"}, ["-n", "3"]),
]
SETS = [
    "N=1; G=2",
    "N=${1:-2}; G=$((N * 4))",
    'N=4; [ -n "$DEBUG" ] && N=1',
    "N=4; [[ $1 == a ]] && N=1 || N=2",
    "N=1; ((N++))",
    "N=1; let N+=1",
    "N=1; printf -v N 3",
    "N=1; eval N=2",
    'N=1; put() { eval "$1=2"; }; put N',
    "N=1; unset N",
    ': "${N:=8}"; : ${G:=2}',
    'N=1; if [ -n "$DEBUG" ]; then N=2; fi',
    "N=2; (N=1)",
    "N=2; N=1 true",
    "N=3; export N",
    "N=1; case $1 in a) N=2 ;; esac",
    "N=1; for N in 2 3; do :; done",
    "N=1; read -r N <<< 4",
    "declare -i N=1+1",
    "f() { local N=1; }; N=2; f",
    'f() { N=1; }; N=2; [ -n "$DEBUG" ] && f',
    "N=1; while getopts n: o; do N=$OPTARG; done",
    "N=2; echo a | grep -q b && N=1",
    "N=1; (( N < 2 )) && N=2",
    "A=(1 2); N=${#A[@]}; G=${A[1]}",
]
STARTS = [
    "torchrun --nnodes=$N --nproc_per_node=$G t.py",
    'srun torchrun --nnodes "${N:-1}" --nproc_per_node=${G:-8} $MORE t.py',
    'ARGS=(--nnodes=$N)\n[ -n "$DEBUG" ] && ARGS+=(--nproc_per_node=$G)\ntorchrun "${ARGS[@]}" --tee=1 t.py',
    'ARGS=(--nnodes=$N)\nCMD="torchrun ${ARGS[*]} --nproc_per_node=$G t.py"\n$CMD',
    'ARGS="--nnodes=$N"\nARGS="$ARGS --nproc_per_node=$G"\ntorchrun $ARGS t.py',
    "torchrun --standalone $MORE --nnodes=$N t.py",
    'bash -c "$(declare -f torchrun); torchrun --nnodes=$N --nproc_per_node=$G t.py"',
]


def given(script: str) -> list[dict[str, str]]:
    """The options of each start, in all environments."""
    starts = []
    for environment, arguments in ENVIRONMENTS:
        answer = subprocess.run(
            [str(BASH), "-c", SHELL + script, "job", *arguments], env={"PATH": "/usr/bin:/bin", **environment},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        for line in answer.stdout.split("\n"):
            if line.startswith("RUN"):
                starts.append(options(line.split("\x1f")[1:]))
    return starts


def options(words: list[str]) -> dict[str, str]:
    words = words[: words.index("t.py")]
    read = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            read[name[2:]] = value if equals or following.startswith("--") else following
    return read


def launch_of(script: str) -> tuple[Command, File] | None:
    file = read_file("job.sbatch", f"#!/bin/bash\n#SBATCH --job-name=a\n{script}\n")
    assert isinstance(file, File)
    launches = [job.launch for job in file.jobs if job.launch is not None and job.launch.program == "torchrun"]
    return (launches[0], file) if len(launches) == 1 else None


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("sets", SETS)
def test_what_is_called_certain_is_what_bash_gives(sets: str) -> None:
    for start in STARTS:
        script = f"{sets}\n{start}"
        read = launch_of(script)
        assert read is not None, script
        launch, file = read
        own = own_options(launch)
        certain = {name: value.value for name, value in own.items() if value.known and not value.default}
        certain.pop("standalone", None)  # a switch
        for real in given(script):
            assert {name: real.get(name) for name in certain} == certain, script
            if not hides_options(launch.words):
                assert set(real) <= set(own) | file.scripts[0].added_options, script
