"""What SLU006 proposes for a line that sbatch refuses: the line that is written as the fix says is taken, and asks for
what was meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SCRIPT = "#!/bin/bash\n#SBATCH {line}\n#SBATCH --gres=gpu:4\nsrun python train.py\n"
COMMENT = "write # before a comment"
LIST = "write commas without blanks between the values, and # before a comment"


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("--time=1 day", "write 1-00:00:00"),  # `--time=1 # day` is a minute
        ("--time=3 days, 0:00:00", "write 3-00:00:00"),
        ("--time=24 hours", "write 24:00:00"),
        ("--time 30 min", "write 30:00"),
        ("--time=1 12:00:00", "write days-hours:minutes:seconds without a blank, as in 1-12:00:00"),
        ("--time=10:00:00 ten hours", COMMENT),
        ("--time=2d", "write 2-00:00:00"),
        ("--time=90min", "write 90:00"),
        ("--time=1d12h", "write days-hours:minutes:seconds"),
        ("--mail-type=END FAIL", "write END,FAIL"),
        ("--exclude=n01 n02", LIST),
        ("--partition gpu cpu", LIST),
        ("--exclude=n[1-3] , n5", "remove the blanks from the list"),
        ("--array=0-3 5", LIST),
        ("--array 0-3 %2", "remove the blank"),
        ("--gres=gpu:a100 :2", "remove the blank"),
        ("--gres=gpu: 2", "remove the blank"),
        ("--mem=64 gb", "remove the blank"),
        ("--mem=64 000", "remove the blank"),  # `--mem=64 # 000` is 64 MB
        ("--nodes=2 % two", COMMENT),
        ("--export=TAG=a b", f"quote the whole value, or {COMMENT}"),
        ("--export=all module load cuda", "remove `module load cuda`: the option takes names of variables"),
        ("--export=ALL NCCL_DEBUG=WARN", "write --export=ALL,NCCL_DEBUG=WARN"),
        ("--export=ALL A=1, B=2", "write --export=ALL,A=1,B=2"),
        ("--export=ALL OMP_NUM_THREADS", "write --export=ALL,OMP_NUM_THREADS"),
        ("--export=ALL A=1 # one", "write --export=ALL,A=1"),
        ('--export="A=a b" B=1', f"quote the whole value, or {COMMENT}"),
        ("--export=ALL, A=1", "write --export=ALL,A=1"),
        ("--export=A=1 B=2", "write --export=A=1,B=2"),
        ("--output=log.out standard output", f"quote the whole value, or {COMMENT}"),
        ("--constraint=a100 | v100", "remove the blanks"),
        ("--nodes 2 ntasks 4", "write --ntasks"),
        ("--exclusive mem=0", "write --mem=0"),
        ("--exclusive true", "remove `true`: the option has no value"),
        ("--gres:gpu:2", "write = between an option and its value"),
        ("--mail-type=", "write a value, or remove the option"),
        ("--cpus-per-task 8 cores", COMMENT),
        ("--mail-type=END|FAIL", "write END,FAIL"),
        ("--mail-type=end;fail", "write end,fail"),
        ("--mail-type=FAILED", "did you mean FAIL?"),
        ("--mail-type=email", "write BEGIN, END, FAIL or ALL, with commas between them"),
        ("--signal=B:USR1@2m", "write B:USR1@120, in seconds"),
        ("--signal=B:USR1@24h", "write B:USR1@65535, in seconds: 65535 is the most"),
        ("--signal=USR1@90s", "write USR1@90, in seconds"),
        ("--signal=USR1@5:00", "write the time before the end in seconds, as in B:USR1@300"),
    ],
)
def test_the_fix_keeps_what_was_meant(run: Run, line: str, fix: str) -> None:
    (finding,) = [f for f in run("a.sbatch", SCRIPT.format(line=line), "SLU006") if f.level != "info"]
    assert (finding.level, finding.fix) == ("error", fix)


@pytest.mark.parametrize(
    ("line", "level", "fix"),
    [
        ("-N=2", "error", "write -N 2"),
        ("-n=4", "error", "write -n 4"),
        ("-t=10:00:00", "error", "write -t 10:00:00"),
        ("-N 2 -c=8", "error", "write -c 8"),
        ("-p=gpu", "warning", "write -p gpu"),
        ("-o=log.out", "warning", "write -o log.out"),
    ],
)
def test_a_short_option_takes_no_equals_sign(run: Run, line: str, level: str, fix: str) -> None:
    (finding,) = run("a.sbatch", SCRIPT.format(line=line), "SLU006")
    assert (finding.level, finding.fix) == (level, fix)
    assert run("a.sbatch", SCRIPT.format(line="-N 2 -J=x"), "SLU006") == []  # a name is a name


def test_a_line_has_one_mistake(run: Run) -> None:
    assert shown(run("a.sbatch", SCRIPT.format(line="--dependency=after 123"), "SLU006")) == ["error SLU006 2"]
    assert shown(run("a.sbatch", SCRIPT.format(line="--mem 64 GB"), "SLU006")) == ["error SLU006 2"]


def test_a_form_is_not_filled_in_yet(run: Run) -> None:
    assert run("a.sbatch", SCRIPT.format(line="--job-name=[JOB NAME]"), "SLU006") == []
    form = "#!/bin/bash\n#SBATCH --job-name=\n#SBATCH --time=\n#SBATCH --nodes=\n# your commands\n"
    assert run("a.sbatch", form, "SLU006") == []
    assert run("a.sbatch", form + "srun python train.py\n", "SLU006") == []
    one = form.replace("--time=", "--time=1:00:00").replace("--job-name=", "--job-name=a")
    assert shown(run("a.sbatch", one + "srun python train.py\n", "SLU006")) == ["error SLU006 4"]


@pytest.mark.parametrize(
    ("value", "shown_as", "fix"),
    [
        ("${SLURM_EMAIL:-$USER@example.org}", "${SLURM_EMAIL…}", "remove it, and pass it: sbatch --mail-user="),
        (
            "$SLURM_JOB_USER@example.org",
            "$SLURM_JOB_USER",
            "write a literal value: Slurm sets the variable in the job only",
        ),
    ],
)
def test_variables_that_slurm_sets_are_known(run: Run, value: str, shown_as: str, fix: str) -> None:
    (finding,) = run("a.sbatch", SCRIPT.format(line=f"--mail-user={value}"), "SLU006")
    assert shown_as in finding.message
    assert finding.fix.startswith(fix)


def test_an_address_of_mail_is_no_option(run: Run) -> None:
    """sbatch: unrecognized option '--kim@example.org'."""
    (finding,) = run("a.sbatch", SCRIPT.format(line="--kim@example.org"), "SLU006")
    assert (finding.level, finding.span.line, finding.span.column) == ("error", 2, 9)
    assert finding.fix == "write --mail-user=kim@example.org"


@pytest.mark.parametrize(
    ("program", "fix"),
    [
        (
            "python -m torch.distributed.run --nproc_per_node=$GPUS train.py",
            "write 1, as srun starts a launcher per task",
        ),
        ("python train.py", "remove it, and pass it: sbatch --ntasks-per-node=${GPUS:-8} …"),
    ],
)
def test_tasks_of_a_launcher(run: Run, program: str, fix: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --ntasks-per-node=${{GPUS:-8}}\nGPUS=8\nsrun {program}\n"
    (finding,) = [one for one in run("job.sbatch", text, "SLU006") if "expand" in one.message]
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("gpus", "fix"),
    [
        ("gpu:4", "use $SLURM_GPUS_ON_NODE, or request them with --gpus-per-node"),
        ("gpu:a100:4", "use $SLURM_GPUS_ON_NODE"),  # SLURM_GPUS_PER_NODE would be a100:4
    ],
)
def test_a_count_of_gpus_is_a_number(run: Run, gpus: str, fix: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --gres={gpus}\nsrun torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE train.py\n"
    assert [f.fix for f in run("a.sbatch", text, "SLU006")] == [fix]


def test_a_command_in_a_directive_is_not_to_be_quoted(run: Run) -> None:
    (finding,) = run("a.sbatch", SCRIPT.format(line="--output=`date +%F`.out"), "SLU006")
    assert finding.fix.startswith("use a literal path")


def test_sh_has_no_status_of_a_pipe(run: Run) -> None:
    text = "#!/bin/sh\n#SBATCH --nodes=1\nset -e\nsrun python t.py | tee log\npython eval.py\n"
    (finding,) = run("a.sbatch", text, "SLU006")
    assert finding.fix == "begin with #!/bin/bash and add `set -o pipefail`"


def test_line_breaks_of_binary_files_stay(run: Run) -> None:
    text = "#!/bin/bash\r\n#SBATCH --nodes=1\r\nsrun python t.py\r\n"
    for name, pattern in (("a.sbatch", "*.sbatch"), ("job", "job")):
        (finding,) = run(name, text, "SLU006")
        assert f"`{pattern} text eol=lf`" in finding.fix
