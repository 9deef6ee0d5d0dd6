"""Reasons of single findings, where a rule covers several mistakes and its own `Why:` is about another of them."""

from __future__ import annotations

REFUSED_BY_PARALLELCLUSTER = "`pcluster create-cluster` ends with `Invalid cluster configuration` and creates nothing."
REFUSED_BY_EC2 = "EC2 refuses the request (RunInstances): the instance is never started."
DISK_IN_TEMPLATE = (
    "CreateNodegroup ends with an InvalidParameterException: a group with a launch template has its disk and its "
    "access by ssh there."
)
SMALL_MESSAGES = (
    "small messages measure latency, not bandwidth: 1 MB at 400 GB/s takes 2.5 µs, less than a collective needs to "
    "start, and a good node looks slow."
)
COUNT_OF_ZONES = (
    "the template takes as many zones from the list as the number says: `!Select [2, …]` of 2 zones fails, and the "
    "stack is rolled back."
)
ZONES_LEFT_OUT = (
    "a template that is told the smaller number takes the first zones of the list: the others get no subnet."
)
NAME_OF_A_QUEUE = (
    "Kubernetes takes names of at most 63 lower-case letters, digits and hyphens: the API server refuses the queue "
    "after the cluster was created."
)
IGNORED_BY_ACCELERATE = (
    "accelerate looks its keys up by name and silently ignores all others: the option that was meant keeps its default."
)
REFUSED_BY_TORCHTITAN = (
    "torchtitan 0.2 ends with `Invalid field names` on every rank, after the nodes were allocated; 0.1 ignores the "
    "key, and the option that was meant keeps its default."
)
REFUSED_BY_ACCELERATE = (
    "accelerate looks the value up in a list of its own: another one ends the launcher, or with FSDP every rank, with "
    "a ValueError or KeyError."
)
IGNORED_BY_DEEPSPEED = (
    "DeepSpeed looks its keys up by name and silently ignores all others: the option that was meant keeps its "
    "default, such as gradient_clipping 0, which is none."
)
PARAMETERS_STAY = (
    "only stage 3 divides the parameters, and only what is divided is offloaded: the weights of 8 billion parameters "
    "in bf16 keep 16 GB of every GPU."
)
OFFLOAD_DEVICE = (
    "DeepSpeed's model takes 3 words, none, cpu and nvme: deepspeed.initialize ends with a ValidationError on every "
    "rank, after the nodes were allocated."
)
UNKNOWN_OPTIMIZER = (
    "deepspeed.initialize ends with `AssertionError: … is not a supported DeepSpeed Optimizer` on every rank: it knows "
    "9 names of its own in 0.19.8, in any letters, and those of torch.optim exactly as written there."
)
OPTIMIZER_PARAMETER = (
    "every key of params becomes an argument of the optimizer: one that it does not have is a TypeError (`unexpected "
    "keyword argument`) on every rank."
)
CLIPPING_OF_AN_OPTIMIZER = (
    "DeepSpeed clips gradients itself, by gradient_clipping at the top (default 0, none), and raises a ValueError "
    "where an optimizer is given max_grad_norm."
)
SCHEDULE_PARAMETER = (
    "deepspeed.initialize calls the schedule with the keys of params: one that it does not have, or lacks, is a "
    "TypeError on every rank."
)
NO_NVME_PATH = (
    "ZeRO-3 joins nvme_path and a directory of its own before it makes the swap files: without it deepspeed.initialize "
    "ends with a TypeError or an AssertionError on every rank, after the nodes were allocated."
)
STATES_IN_HOST_MEMORY = (
    "ZeRO-1 and ZeRO-2 take nvme for cpu and say nothing: the states of Adam and the 32-bit weights, 12 bytes per "
    "parameter and 96 GB for 8 billion, are in the memory of the nodes, not on their disks."
)
NAMED_NONE = (
    "the path of accelerate is then the text `none`: the swap files of every rank go to a directory of that name in "
    "the working directory, often the shared file system."
)
NO_WEIGHTS_SAVED = (
    "under ZeRO-3 each rank has a part of the weights. Without the key, false by default, save_16bit_model logs 1 line "
    "and writes nothing, and accelerate's get_state_dict raises a ValueError: after the run there is no model."
)
UNKNOWN_SCHEDULER = (
    "deepspeed.initialize ends with `AssertionError: DeepSpeed does not recognize LR scheduler` on every rank: it has "
    "5 of its own, and looks all other names up in torch.optim.lr_scheduler."
)
PATH_AS_IMAGE = (
    "EC2 takes ids such as ami-0123456789abcdef0 and refuses a path (InvalidAMIID.Malformed): the stack is rolled "
    "back, or no instance of the group starts."
)
PLAIN_TEXT_ID = (
    "CloudFormation replaces a logical id only in Ref, GetAtt and Sub: the service is given the word itself, and "
    "finds nothing of that name or takes it for a name of its own (flow logs that go nowhere)."
)
OMITTED_WHEN_ASKED = (
    "of `!If [condition, yes, no]` the first branch is taken where the condition holds: the stack deploys without the "
    "resource that was asked for, such as a placement group, and uses it where nobody asked."
)
NO_DEFAULT = (
    "CloudFormation asks for every parameter without a default: create-stack ends with `Parameters: […] must have "
    "values` for whoever leaves it out."
)
UNUSED_PARAMETER = (
    "whatever is given for it changes nothing: who sets it believes that the stack follows it, or a reference to it "
    "was forgotten."
)
CIRCULAR = (
    "a resource is created after all that it refers to, and this one would have to exist before itself: create-stack "
    "ends with `Circular dependency between resources`, and nothing is created."
)
UNRESOLVED = "create-stack ends with `Unresolved resource dependencies`: of the whole template nothing is created."
NO_SYSTEM_NODE = (
    "the 2 pods of CoreDNS run on GPU nodes, or, where these are tainted or scaled to 0, nowhere: no pod resolves a "
    "name, and nodes with GPUs cannot be scaled to 0 while system pods are on them."
)
UNREAD_VARIABLE = "rdma-core looks each variable up by its exact name: under another one the setting keeps its default."
NO_KERNEL_IMAGE = (
    "a GPU runs machine code of its own major number only (code for 8.0 does not run on 9.0): the first kernel ends "
    "with `no kernel image is available for execution on the device`."
)
NO_PRELOAD = (
    "the loader prints one line (`cannot be preloaded: ignored`) and starts the program with the library that it "
    "finds by itself, which may be another version."
)
NO_PLUGIN = "NCCL that finds no plugin falls back to TCP without an error: 100 instead of 3,200 Gbps on p5.48xlarge."
UNREADABLE_BUCKET = (
    "every node copies its lifecycle scripts from there at its first start: where the role may not read, S3 refuses "
    "and the group is rolled back."
)
SEPARATE_CONTROLLERS = (
    "each controller starts a slurmctld with a state of its own: without a shared StateSaveLocation the second one "
    "knows none of the first one's jobs."
)
ONE_SHELL_EACH = (
    "each RUN starts a shell of its own (`/bin/sh -c`), and only files outlive it: the next instruction has neither "
    "its variables nor its directory."
)
SOURCE_OF_BASH = (
    "`source` is a word of bash; dash answers `source: not found` with status 127, and Docker stops the build there."
)
EXEC_FORM = (
    "Docker replaces no variable in a list, and no shell runs: torchrun ends with a ValueError at "
    "`--nproc_per_node=$NGPU`, which is no number, in the first second of the container."
)
NEWEST_COMMIT = (
    "a build takes the newest commit of its day: images that were built a week apart may hold different programs, and "
    "no file says which."
)
BRANCH_NAMED_AS_A_TAG = (
    "the new branch starts at the commit that the clone checked out, the newest of the default branch: that one is "
    "built, and only its name is that of a release."
)
TWO_VERSIONS = (
    "the image has one of the two, the one that was installed last, and whoever reads or changes the other line works "
    "with a version that is not there."
)
TWO_VERSIONS_OF_STAGES = (
    "what one stage builds is linked against its version, and runs with that of the other; whoever changes one line "
    "forgets the other."
)
KERNEL_MODULES = (
    "the installer compiles the efa module for the kernel of the machine that builds the image (`uname -r`), whose "
    "headers an image does not have: the build fails, or the image holds a module that no node loads."
)
OTHER_TRANSPORT = (
    "HPC-X brings a network plugin of its own for NCCL (libnccl-net.so), and NCCL loads the first one on the library "
    "path: if that is for InfiniBand, nodes with EFA communicate over TCP."
)
FULL_SHARED_MEMORY = (
    "a batch of 256 images of 224 × 224 in float32 is 154 MB, and the workers pass it through /dev/shm: when its 64 "
    "MiB are full, they stop with `Bus error`."
)
NO_HUGE_PAGES = (
    "libfabric maps its buffers in pages of 2 MiB: in a pod that requests none their limit is 0, and libfabric falls "
    "back to small pages or ends with a bus error."
)
TWO_PLUGINS = (
    "both are named libnccl-net.so, and NCCL loads the one that comes first on the library path: an older plugin than "
    "the installer's may not fit its libfabric."
)
DRIVER_TOO_OLD = (
    "the driver of the node must be as new as the CUDA of the image asks (525 for 12, 580 for 13): else the first CUDA "
    "call of every rank fails, with `CUDA driver version is insufficient`."
)
NO_PEER_MEMORY = (
    "without GPUDirect each message is copied to the memory of the host before a card sends it: the 32 cards of a "
    "p5.48xlarge share what that memory can carry."
)
FABRIC_MANAGER = (
    "Fabric Manager compares its version with the driver's at its start and ends where they differ: without it the 8 "
    "GPUs of a node with NVSwitch cannot be used, and CUDA stops with error 802."
)
REFUSED_BY_PIP = (
    "pip compares the requirements of all packages of a command before it installs any, and ends with "
    "ResolutionImpossible: the image is never built."
)
LEFT_BEHIND = (
    "a command that names torch alone compares nothing with packages that are installed already: the operators of "
    "torchvision are built for one release of torch, and its import ends with `operator torchvision::nms does not "
    "exist`."
)
TORCH_REPLACED = (
    "pip uninstalls the torch that is there and installs the one that the package requires, from the default index: "
    "the job runs with another torch than the file says, often for another CUDA."
)
REFUSED_BY_CONDA = "conda's package of torchvision depends on one release of pytorch: the solver refuses the other one."
PLACEMENT_NOT_STATED = (
    "ParallelCluster has no default for EFA: it ends with `Invalid cluster configuration` until one is stated."
)
FAR_APART = (
    "without a group EC2 places each node anywhere in the zone: nodes that share no switch have more hops between "
    "them, and each step waits for the slowest pair."
)
ONE_INTERFACE = (
    "EC2 gives a public address only to an instance with one interface, and refuses the request otherwise: no node "
    "starts."
)
UNDOCUMENTED_INDEX = (
    "AWS documents device index 1 for all cards but the first; EC2 starts the instance with other numbers today, and "
    "nothing says that it will tomorrow."
)
KEY_NOT_SAVED = (
    "the first restart ends with a KeyError on every rank: the checkpoints of hours cannot be resumed by this script."
)
SAMPLER_AND_SHUFFLE = (
    "the constructor raises `sampler option is mutually exclusive with shuffle`: every rank stops before the first "
    "step."
)
DATABASE_NOT_REACHED = (
    "a database whose security group does not admit the head node on its port (3306 of MySQL) leaves slurmdbd without "
    "a connection: sacct shows nothing."
)
ONE_ZONE_OF_A_DATABASE = "RDS refuses a subnet group with fewer than 2 zones, and the stack is rolled back."
CHECKPOINTS_OVERLAP = (
    "each checkpoint starts before the last one is written: the training waits for the disk, or the writes share its "
    "bandwidth and fall further behind."
)
LUSTRE_OVER_TCP = (
    "without EFA in the client, nodes mount the file system over TCP, with at most 100 instead of 1,200 Gbps per node."
)
ONE_COPY = (
    "a scratch file system keeps one copy of each file: when one of its servers fails, the files on it are lost, and "
    "so is the run that wrote them."
)


def without_efa(type_: str, gbps: float, cards: int) -> str:
    """What nodes of an instance type lose without EFA."""
    part = f"{gbps / cards:g} of the {gbps:g} Gbps" if cards > 1 else f"{gbps:g} Gbps at most"
    return f"without EFA, NCCL sends over TCP: {type_} has {part} on its first card, and the CPUs copy every message."


TCP_FOR_INFINIBAND = (
    "with NCCL_IB_DISABLE=1 NCCL opens no InfiniBand or RoCE adapter, whatever the other NCCL_IB_ variables say: each "
    "message between nodes is copied by the CPUs and sent over TCP."
)
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
LONELY_COLLECTIVE = (
    "a collective ends when all ranks of the group have called it. Rank 0 waits until the timeout, by default 10 "
    "minutes with NCCL and 30 with gloo, or meets another collective of the other ranks, with other sizes."
)
HOST_TENSOR = (
    "every rank ends with `No backend type associated with device type cpu` (before torch 2.0 with `Tensors must be "
    "CUDA and dense`) when it comes to this line, with all that was trained since the last checkpoint."
)
READ_TOO_EARLY = (
    "the other ranks come to this line while rank 0 still writes: they find no file, half of one, or the one of the "
    "run before. torch.distributed stops the whole job when one rank ends."
)
LONELY_PASS = (
    "FSDP gathers each layer from all ranks before it runs. The others never join: rank 0 waits until the timeout of "
    "the process group, by default 10 minutes with NCCL, or meets another collective of theirs."
)
LONELY_STATE = (
    "FSDP gathers each layer from all ranks for a full state dict. The others never join: rank 0 waits until the "
    "timeout of the process group, by default 10 minutes with NCCL, and the checkpoint is not written."
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
    "sbatch accepts it, prints no warning and does something else: the log gets another name, or the partition is not "
    "found, and the option that was meant keeps its default."
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
NO_HYPHEN = (
    "an option begins with the hyphen of ASCII. argparse calls the word an unrecognized argument and ends with status "
    "2; a launcher takes it for the script."
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
NO_REQUIREMENT = "pip ends with `Invalid requirement` and status 1, and installs none of the packages of the command."
LOOSE_REQUIREMENT = "the package is not installed, or in another version: the import fails when the job starts."
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
REPEATED_KEY = (
    "one program takes the last of the two, another refuses the file; no rule ran on it, because its meaning is open."
)
STEP_REFUSED = "srun ends with `unrecognized option` before a task starts, after the nodes were allocated."
FILE_AS_MODULE = (
    "Python imports what stands before `.py`, looks for a module `py` in it and ends with status 1 (`Error while "
    "finding module specification`): no rank trains."
)
NUMBER_AS_PORT = (
    "Slurm counts jobs up to 67,043,328: from number 65,536 on each start fails with an invalid port, on a cluster "
    "that ran for months."
)
BEHIND_THE_SCRIPT = (
    "`sh -c` takes one word as the script. The words behind it are its parameters $0, $1 …: the program starts without "
    "them, and Python without a script ends with status 0."
)
NO_SHELL = (
    "Kubernetes replaces `$(NAME)` only, and no shell reads the value: the program gets the letters, and torchrun ends "
    "with `invalid int value`, or looks for a host of that name."
)
NO_LIST = (
    "Docker takes what is no JSON list for a line of the shell: sh looks for a program `[torchrun,` (status 127), or "
    "takes the brackets for a test, and the container ends at once."
)
NO_SUCH_PROGRAM = (
    "the runtime looks for a file of that name on the image's PATH and ends with `executable file not found in $PATH`; "
    "the pod is in RunContainerError, and its GPUs stay reserved."
)
MERGE_CONFLICT = "git wrote these lines where two changes met; no program reads the file as either of them."
REDIRECTED_TEST = (
    "what is left is `[ value ]`, which is true for every value that is not empty: a job on 1 node takes the branch "
    "for several, and a file named after the number appears."
)
KEPT_FROM_THE_SHELL = (
    "a shell expands a variable once: what its value holds is not looked at again. torchrun ends with `invalid int "
    "value`, or looks for a host of that name, after the nodes were allocated."
)
CLIPPED_SCALED = (
    "GradScaler multiplies the loss by 65,536 at first: gradients of norm 1 have norm 65,536 when they are clipped to "
    "1, and the step after it is 65,536 times too small with SGD; with Adam every step is clipped."
)
STEPPED_SCALED = (
    "GradScaler multiplies the loss by 65,536 at first, and its own `step` divides the gradients again. Without it the "
    "optimizer takes steps that are 65,536 times too large with SGD, and no overflow is skipped."
)
SCALER_NOT_UPDATED = (
    "the second `scaler.step(optimizer)` raises `step() has already been called since the last update()`: every rank "
    "stops at its second step."
)
GRADIENTS_DROPPED = (
    "of N backward passes only the last one counts, divided by N: 8 micro-batches are computed, and one trains with an "
    "eighth of its gradient."
)
GRADIENTS_EMPTY = (
    "`zero_grad` sets the gradients to None, and `step` changes 0 parameters without an error: the loss stays where it "
    "was."
)
GRADIENTS_SUMMED = (
    "`backward` adds to the gradients that are there: the step number 1,000 is one along the sum of 1,000 gradients."
)
CLIPPED_FOR_NOTHING = (
    "the step is taken with the gradients as they were: a batch with a norm of 1,000 moves the weights by all of it."
)
CLIPPED_BY_SHARD = (
    "each of N ranks holds one of N parts of the gradient and divides it by the norm of this part: parts are scaled "
    "differently, and the norm of the whole may be sqrt(N) times the limit (2.8 on 8 ranks)."
)
EPOCHS_FOR_BATCHES = (
    "40 epochs as a length that is counted in batches end after 40 batches, in the first minute of the run; a cosine "
    "then rises again, and swings every 80 batches."
)
BATCHES_FOR_EPOCHS = (
    "a schedule of 40 x 1,000 batches that advances 40 times is at a thousandth of its length at the end: the learning "
    "rate stays at its start, or in its warm-up."
)
NOT_AVERAGED = (
    "DistributedDataParallel averages gradients of passes that went through itself. On 8 ranks 8 different models are "
    "trained, each on an eighth of the data, and only one is saved."
)
LEFT_IN_EVAL = (
    "after the first validation the model trains on without dropout and with frozen statistics of batch norm, in all "
    "epochs but 1."
)
SKIPPED_ALONE = (
    "the other ranks wait in their backward pass until this one calls its next: from then on gradients of different "
    "batches are averaged, 1 step apart, and at the end of the epoch the others wait until the timeout (10 minutes)."
)
MOMENTS_LOST = (
    "the step goes on where it was, and Adam's moments (8 of the 12 bytes of state per parameter) start from zero: the "
    "loss jumps after every restart."
)
SCHEDULE_LOST = (
    "a new scheduler counts from 0: after a restart at step 100,000 the warm-up runs again, and the decay ends as many "
    "steps too late."
)
EPOCH_NOT_USED = (
    "every restart trains all epochs again: a job that is requeued every 24 hours and needs 30 never ends, and one "
    "that ends has trained too long."
)
PREFIX_MISMATCH = (
    "DistributedDataParallel puts `module.` before each key: load_state_dict raises `Missing key(s) in state_dict`, "
    "and the first restart ends on every rank."
)
SAME_STREAM = (
    "get_worker_info knows the workers of one process: on 16 ranks all 16 read the same samples in the same order and "
    "compute the same gradient, and 15 of 16 GPUs add nothing."
)
PART_OF_ONE_NODE = (
    "on 4 nodes of 8 GPUs the data are divided by 8, not by 32: the nodes train on the same samples, and 3 of 4 add "
    "nothing."
)
NO_SUCH_GPU = "a node of 8 GPUs numbers them 0 to 7: ranks 8 and above end with `invalid device ordinal`."
BEYOND_THE_PARTITION = (
    "a job above a limit of its partition stays pending with PartitionTimeLimit or PartitionNodeLimit, 0 nodes are "
    "started for it, and no log says so; with EnforcePartLimits sbatch refuses it."
)
UNEXPORTED = (
    "a variable without `export` is the shell's own: no program that it starts finds it in its environment, and NCCL, "
    "libfabric and torch take their default, with 0 words in the log."
)
LOST_EXPORTS = (
    "with a list, srun gives its tasks the SLURM_* variables and those of the list only: without MASTER_ADDR "
    "`init_process_group` raises an error, and NCCL runs with 0 of the settings that the script exports."
)
LOST_DEFAULTS = (
    "srun gives its tasks the SLURM_* variables and those of the list only: libraries take their defaults. Without "
    "HF_HOME each looks below ~/.cache, and downloads 16 GB of weights again, or stops where there is no internet."
)
LATER_CARET = (
    "NCCL takes 1 sign off the front of the value and splits the rest at the commas: no interface has a name that "
    "begins with ^, and those behind the first stay eligible. A rank that picks docker0 gives the others an address "
    "that every node has."
)
UNREAD_BY_NCCL = (
    "NCCL looks each variable up by its exact name: under another one the setting keeps its default, with 0 words in "
    "the log."
)
TRAINS_AT_ZERO = (
    "DeepSpeed leaves the rate at warmup_min_lr, by default 0, from that step on: of 50,000 steps with a schedule of "
    "5,000 the last 45,000 change nothing."
)
AUTO_IS_NO_NUMBER = (
    "DeepSpeed takes the text for a number: deepspeed.initialize ends with `TypeError: '>' not supported between "
    "instances of 'str' and 'int'` on all 8 ranks of a node."
)
ALL_ON_ONE_GPU = (
    "torchrun hands the number over in the variable LOCAL_RANK only: 8 processes share GPU 0, NCCL stops with "
    "`Duplicate GPU detected` or the GPU runs out of memory, and 7 GPUs stay idle."
)
ALL_ON_GPU_0 = (
    "torch.load puts each tensor back on the GPU that it came from. Model and Adam are 12 bytes per parameter: of 1 "
    "billion, 8 ranks put 96 GB on GPU 0, beside what it trains with, and the restart runs out of memory."
)
STOPS_ALONE = (
    "the ranks see different losses and stop in different epochs: those that go on wait in their backward pass until "
    "the timeout (10 minutes with NCCL)."
)
NO_AUTO_RESUME = (
    "Slurm's own srun has no such option: it ends with `unrecognized option '--auto-resume=1'` after the nodes were "
    "allocated."
)
