"""Reasons of single findings, where a rule covers several mistakes and its own `Why:` is about another of them."""

from __future__ import annotations

LAUNCH_BLOCKING = (
    "the CPU waits for every kernel before it starts the next, so no kernel is queued ahead and communication does not "
    "overlap with computation: a step of 1,000 kernels has 1,000 pauses."
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
NO_LOG_DIRECTORY = (
    "the log is opened before the script starts: a `mkdir` inside it comes too late, and the job ends in its first "
    "second without a line of output."
)
MISSPELT_VARIABLE = (
    "bash replaces a variable that is not set with an empty text and goes on with status 0: a path loses a part, an "
    "option its value. `set -u` would stop the script there."
)
LOOPBACK = (
    "127.0.0.1 is the node itself on every node: NCCL gives that address to the ranks of the others, which connect to "
    "themselves and wait for the timeout (10 minutes by default)."
)
IDLE_GPUS = "GPUs that are reserved are paid for and no other job gets them: 4 unused of 8 double the price of a step."
TWO_REQUESTS = (
    "one of the 2 numbers is not what the job gets, and an edit of that line later changes nothing; which one it is "
    "depends on the version of Slurm."
)
