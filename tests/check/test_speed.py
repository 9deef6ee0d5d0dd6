"""`check` stays fast: what it takes per file, and the search for near misses that saves most of that."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from timing import cpu_seconds

from trainwright.catalog.framework_flags import frameworks, options_of
from trainwright.catalog.instances import instance_names
from trainwright.check import examples
from trainwright.check.engine import check
from trainwright.check.readers.recognise import read_file
from trainwright.errors import nearest

PATHS = sorted(Path(examples.__file__).parent.glob("*/*.yaml"))


def parse_in_python() -> None:
    for path in PATHS:
        with contextlib.suppress(yaml.YAMLError):  # a template
            list(yaml.compose_all(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader))


def test_checking_a_file_takes_less_than_twice_as_long_as_parsing_it_in_python() -> None:
    """At twice that time, 10,000 files take 20 s of CPU time: 10 s on two cores. A ratio of CPU times of one process
    does not depend on the machine, nor on what else runs on it."""
    ratios = []
    for _ in range(3):
        ratios.append(cpu_seconds(lambda: check([str(path) for path in PATHS])) / cpu_seconds(parse_in_python))
        if min(ratios) < 2:
            return
    pytest.fail(f"checking took {', '.join(f'{ratio:.1f}' for ratio in ratios)} times as long as parsing")


@pytest.mark.parametrize("word", ["p5.48xlrge", "p4", "g6.e12xlarge", "--micro-batch-sise", "--tensor", "x", ""])
def test_the_nearest_word_is_the_one_of_difflib(word: str) -> None:
    for known in (instance_names(), *(list(options_of(name)) for name in frameworks()[:6])):
        for cutoff in (0.6, 0.85):
            first = difflib.get_close_matches(word, known, n=1, cutoff=cutoff)
            assert nearest(word, known, cutoff) == (first[0] if first else "")


def test_many_findings_of_one_file_take_time_in_proportion_to_their_number(tmp_path: Path) -> None:
    group = """resource "aws_security_group" "g{}" {{
  ingress {{
    from_port = 22
    to_port = 22
    protocol = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }}
}}
"""

    def seconds(count: int) -> float:
        path = tmp_path / f"{count}.tf"
        path.write_text("".join(group.format(number) for number in range(count)))
        return cpu_seconds(lambda: check([str(path)]), tries=2)

    seconds(10)  # loads the rules
    assert seconds(2000) < 14 * seconds(250)  # 8 times the file; splitting it for each finding took 20 times


def name_of(number: int) -> str:
    """A name of letters, so that two of them differ by more than a number."""
    return "".join(chr(ord("A") + int(digit)) for digit in f"{number:06d}")


REPEATED: dict[str, Callable[[int], str]] = {
    "a test on one line": lambda n: f"a {'[ ' * 8 * n}& export CUDA_LAUNCH_BLOCKING=1\nsrun python train.py\n",
    "a variable for a command": lambda n: "CUDA_LAUNCH_BLOCKING=1 a b\n" * n,
    "an exported variable": lambda n: "export CUDA_LAUNCH_BLOCKING=1\n" * n + "srun python train.py\n",
    "a variable in a branch": lambda n: "if [ $A ]; then\n  export CUDA_LAUNCH_BLOCKING=1\nfi\n" * n,
    "a branch in a branch": lambda n: "if [ $A ]; then\n  export CUDA_LAUNCH_BLOCKING=1\n" * n,
    "functions": lambda n: "".join(f"f{i}() {{\n  export CUDA_LAUNCH_BLOCKING=1\n}}\n" for i in range(n)),
    "blanks around =": lambda n: "A = b\n" * n,
    "a directory": lambda n: "#SBATCH --output=logs/a.out\n" + "mkdir -p $X/logs\n" * n,
    "late directives": lambda n: "echo a\n" + "#SBATCH --time=10\n" * n + "echo b\n",
    "misspelt variables": lambda n: "".join(f"LEARN{name_of(i)}=1\npython a.py $LERN{name_of(i)}\n" for i in range(n)),
    "options without a backslash": lambda n: "python train.py a b\n  --lr 1\n" * n,
    "a cd in a subshell": lambda n: "(cd a; make)\n" * n,
    "launches": lambda n: "srun python train.py\n" * n,
    "launches in subshells": lambda n: "(cd a; srun torchrun --nproc_per_node=8 train.py --do_eval)\n" * n,
    "launches in the background": lambda n: "srun -N 1 --mpi=pmix python train.py &\n" * n + "wait\n",
    "launches in strings": lambda n: "srun bash -c 'torchrun --nproc_per_node=8 train.py'\n" * n,
    "launches of scripts": lambda n: "".join(f"srun a{i}.sh\ntorchrun --save_dir=/tmp/{i} b.py\n" for i in range(n)),
    "launches with exports": lambda n: "export RANK=$SLURM_PROCID\nsrun python train.py\n" * n,
    "an output that is not closed": lambda n: "# busbw\n" + "x=$(srun all_reduce_perf -e 1M\n" * 2 * n,
    "outputs in outputs": lambda n: "# busbw\n" + "x=$(srun all_reduce_perf -e 1M\n" * 2 * n + ")\n" * 2 * n,
    "launches on HyperPod": lambda n: "srun --auto-resume=1 --mpi=pmix --gres=gpu:8 python train.py\n" * n,
    "launches on ParallelCluster": lambda n: (
        "srun --auto-resume=1 -N 2 python train.py\n" * n + "cd /opt/parallelcluster\n"
    ),
    "thresholds of benchmarks": lambda n: "# p5.48xlarge\n" + "MIN_BUSBW=900\nsrun all_reduce_perf -e 1M\n" * n,
    "thresholds of several sizes": lambda n: (
        "# p5.48xlarge\n" + "".join(f"MIN_BUSBW={900 + i}\nsrun -N {2 + i} all_reduce_perf -e 1M\n" for i in range(n))
    ),
    "launches with ports": lambda n: "".join(
        f"MASTER_PORT={i}\ntorchrun --nnodes=2 --master_port=$MASTER_PORT a.py\n" for i in range(n)
    ),
}


ROLE = """resource "aws_iam_role" "r{0}" {{
  assume_role_policy = jsonencode({{ Statement = [{{ Principal = {{ Service = "ec2.amazonaws.com" }} }}] }})
}}
"""
ATTACHED = """resource "aws_iam_role_policy_attachment" "a{0}" {{
  role       = aws_iam_role.r{0}.name
  policy_arn = "arn:aws:iam::aws:policy/AdministratorAccess"
}}
"""
LISTED = ATTACHED.replace('"arn:aws:iam::aws:policy/AdministratorAccess"', "each.value").replace(
    "\n", "\n  for_each   = toset(local.policies)\n", 1
)
OPEN = """data "aws_iam_policy_document" "d{0}" {{
  statement {{
    actions   = ["*"]
    resources = ["*"]
  }}
}}
resource "aws_iam_role_policy" "p{0}" {{
  role   = aws_iam_role.r{0}.id
  policy = data.aws_iam_policy_document.d{0}.json
}}
"""
ROLES: dict[str, Callable[[int], str]] = {
    "policies of roles": lambda n: "".join((ROLE + ATTACHED).format(i) for i in range(n)),
    "policies of one list": lambda n: (
        'locals {\n  policies = ["arn:aws:iam::aws:policy/AdministratorAccess"]\n}\n'
        + "".join((ROLE + LISTED).format(i) for i in range(n))
    ),
    "open statements of roles": lambda n: "".join((ROLE + OPEN).format(i) for i in range(n)),
}


@pytest.mark.parametrize("kind", REPEATED)
def test_the_time_grows_with_the_size_of_a_script_and_not_with_its_square(tmp_path: Path, kind: str) -> None:
    start = "#!/bin/bash\n#SBATCH --nodes=2\n"
    assert_proportional([tmp_path / "small.sh", tmp_path / "large.sh"], lambda n: start + REPEATED[kind](n))


@pytest.mark.parametrize("kind", ROLES)
def test_the_time_grows_with_the_number_of_roles_and_not_with_its_square(tmp_path: Path, kind: str) -> None:
    paths = [tmp_path / "small" / "a.tf", tmp_path / "large" / "a.tf"]
    for path in paths:
        path.parent.mkdir()
    assert_proportional(paths, lambda n: ROLES[kind](n // 2))


def test_the_time_grows_with_the_number_of_variables_of_a_pod_and_not_with_its_square(tmp_path: Path) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: a:1\n    env:\n"
    )
    pair = '    - {{name: MASTER_ADDR, value: "$FOO{0}"}}\n    - {{name: FOO{0}, value: a}}\n'
    assert_proportional(
        [tmp_path / "small.yaml", tmp_path / "large.yaml"],
        lambda n: pod + "".join(pair.format(i) for i in range(n // 2)),
    )


def test_roles_without_a_wide_policy_are_passed_over_quickly() -> None:
    text = "".join(ATTACHED.format(i).replace("AdministratorAccess", "AmazonS3ReadOnlyAccess") for i in range(1500))
    assert cpu_seconds(lambda: read_file("a.tf", text), tries=2) < 1  # it took 7 s


def assert_proportional(paths: list[Path], text: Callable[[int], str]) -> None:
    """Four times the lines take 4 times as long, or 16 times where each line looks at all the others."""
    for path, count in zip(paths, (500, 2000), strict=True):
        path.write_text(text(count))
    check([str(paths[0])])  # imports and tables that are read once
    ratios = []
    for _ in range(3):
        small, large = (cpu_seconds(lambda path=path: check([str(path)])) for path in paths)  # type: ignore[misc]
        ratios.append(large / small)
        if large < 0.1 or min(ratios) < 8:  # below, the clock decides
            return
    pytest.fail(f"four times the lines took {', '.join(f'{ratio:.1f}' for ratio in ratios)} times as long")
