"""Reasons of single findings, where a rule covers several mistakes and its own `Why:` is about another of them."""

from __future__ import annotations

LAUNCH_BLOCKING = (
    "the CPU waits for every kernel before it starts the next, so no kernel is queued ahead and communication does not "
    "overlap with computation: a step of 1,000 kernels has 1,000 pauses."
)
NO_WATCHDOG = (
    "torch's watchdog ends a process whose collective failed or took longer than the timeout (10 minutes by default); "
    "without it the others wait for a rank that is gone, and keep their GPUs."
)
LONELY_BARRIER = (
    "a barrier ends when all ranks have called it. Rank 0 waits until the timeout of the process group, by default 10 "
    "minutes with NCCL and 30 with gloo, and the job is stopped."
)
MINUTES = (
    "Slurm reads two numbers as minutes:seconds, and three as hours:minutes:seconds: 12:00 is 12 minutes, not 12 h."
)
STATUS_OF_TEE = (
    "without `pipefail` a pipe has the status of its last command, and tee ends with 0: a crash after hours counts as "
    "COMPLETED, is not requeued, and `--dependency=afterok` starts the next job."
)
STATUS_OF_TEE_IN_POD = (
    "without `pipefail` a pipe has the status of its last command, and tee ends with 0: a crash after hours counts as "
    "Completed, is not tried again (`backoffLimit`), and what waits for the job starts."
)
STATUS_OF_PRINT = (
    "a script ends with the status of its last command, and a print ends with 0: `sacct` shows COMPLETED 0:0 for a "
    "training that failed."
)
SPOOL_DIRECTORY = (
    "slurmd copies the script to its spool directory (by default /var/spool/slurmd/job00042/slurm_script): files "
    "beside the original are not there."
)
LATE_DIRECTIVE = (
    "sbatch reads options up to the first line that is neither a comment nor empty. Below it, #SBATCH is a comment, "
    "and the option keeps its default, such as 1 node and 1 task."
)
BLANK_AFTER_BACKSLASH = (
    "a backslash joins two lines only as the last character of the first. With 1 character behind it the command "
    "starts without the options below, which fail as a command of their own (status 127)."
)
NOT_QUEUED = "sbatch ends with status 255 and queues nothing: of a chain of 10 jobs, none runs overnight."
REFUSED = "sbatch ends with an error and queues nothing: of a chain of 10 jobs, none runs overnight."
OTHER_OPTION = (
    "sbatch takes it without a word and does something else: the log gets another name, or the partition is not found, "
    "and the option that was meant keeps its default."
)
NOT_A_SHELL = (
    "sbatch reads its lines itself, and no shell does: a path keeps the letters `$HOME`, and a number that is a "
    "variable is refused. Nothing is replaced but patterns such as %j, in names of files."
)
COUNT_OF_NOTHING = (
    "an empty number is no number: torchrun stops at `--nproc_per_node=`, and arithmetic with it gives 0 processes."
)
A_COMMENT_TO_SLURM = "for Slurm the line is a comment: the option keeps its default, such as 1 node and 1 task."
ENDS_WITH_THE_SCRIPT = (
    "when the batch script ends, Slurm kills what it has started: the training ends in its first second, and the job "
    "counts as COMPLETED."
)
FILE_ONE = (
    "without `&` the 1 is a file's name, not the standard output: of a job that crashed, the log ends without the "
    "traceback, which is in a file named 1 that the next job overwrites."
)
NO_LOG_DIRECTORY = (
    "the log is opened before the script starts: a `mkdir` inside it comes too late, and the job ends in its first "
    "second without a line of output (exit code 0:53). Slurm 25.11 and later create the directory themselves."
)
MISSPELT_VARIABLE = (
    "bash replaces a variable that is not set with an empty text and goes on with status 0: a path loses a part, an "
    "option its value. `set -u` would stop the script there."
)
UNSET_STOPS = (
    "with `set -u` the shell stops at a variable that is not set, with status 1: the commands below do not run."
)
COMMENT_INSIDE = (
    "a backslash joins the next line, and a comment goes to its end, past any backslash in it: the command starts "
    "without the options below, which fail as a command of their own (status 127)."
)
BLANK_AT_EQUALS = (
    "`NAME=value` is an assignment only without blanks. With one, the line fails with status 1 or 127 and the script "
    "goes on: the variable keeps what it had before, in most scripts nothing."
)
BLANK_BEFORE_ARRAY = "a shell that meets a syntax error runs no line from there on, and ends with status 2."
STRAY_BRACE = (
    "`${DIR}` ends at its first brace, and a second one is text: the job writes to a directory named `a}`, and what "
    "looks for `a` finds nothing."
)
LOST_LINE = (
    "a command goes on in the next line only after a backslash: it starts without these options, which fail as a "
    "command of their own (status 127)."
)
READ_AS_FILE = (
    "`<` reads the file that is named behind it: `pip install numpy<2` fails with status 1 (2: No such file or "
    "directory) before pip starts."
)
DOUBLED_EQUALS = (
    "an assignment takes all behind its first `=`: where the variable is used behind another one, as in "
    "`torch==$VERSION`, there are 3, which pip compares letter by letter."
)
LOOSE_REQUIREMENT = "the package is not installed, or in another version: the first import fails, hours later perhaps."
IN_THE_IMAGE = (
    "`docker history --no-trunc` prints the commands of an image with the values of their build arguments, and a later "
    "layer that deletes a file leaves it in the earlier one: whoever can pull the image has the secret."
)
LOOPBACK = (
    "127.0.0.1 is the node itself on every node: NCCL gives that address to the ranks of the others, which try to "
    "reach the first rank on their own node."
)
IDLE_GPUS = "GPUs that are reserved are paid for and no other job gets them: 4 unused of 8 double the price of a step."
TWO_REQUESTS = (
    "one of the 2 numbers is not what the job gets, and an edit of that line later changes nothing; which one it is "
    "depends on the version of Slurm."
)
BEHIND_THE_SCRIPT = (
    "`sh -c` takes 1 word as the script. The words behind it are its parameters $0, $1 …: the program starts without "
    "them, and Python without a script ends with status 0."
)
NO_SHELL = (
    "Kubernetes replaces `$(NAME)` only, and no shell reads the value: the program gets the letters, and torchrun ends "
    "with `invalid int value`, or looks for a host of that name."
)
