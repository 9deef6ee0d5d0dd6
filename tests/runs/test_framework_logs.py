"""Steps are read from the log of every framework; the lines here are written in each framework's own format."""

from __future__ import annotations

import math
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.runs.framework_logs import LogReader, read_log
from trainwright.runs.log_formats import StepRecord, formats, frameworks

MEGATRON = (
    " [2026-01-02 03:04:05] iteration {step:8d}/    5000 | consumed samples:  {samples:11d} | "
    "elapsed time per iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 401.2 | "
    "learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 2.718282E+00 | load_balancing_loss: 1.0E+00 | "
    "loss scale: 1.0 | grad norm: 0.577 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
# framework -> (a log, what its last record must say)
SAMPLES: dict[str, tuple[str, dict[str, object]]] = {
    "megatron-lm": (
        MEGATRON.format(step=41, samples=10496) + "\n" + MEGATRON.format(step=42, samples=10752),
        {
            "step": 42,
            "total": 5000,
            "loss": 2.718282,
            "step_s": 1.2345,
            "grad_norm": 0.577,
            "lr": 1.5e-4,
            "tflops_gpu": 401.2,
        },
    ),
    "megatron-deepspeed": (
        "[2026-01-02 03:04:05,646] [INFO] [timer.py:260:stop] epoch=0/micro_step=9/global_step=9, "
        "RunningAvgSamplesPerSec=5.5, CurrSamplesPerSec=6.5, MemAllocated=6.01GB, MaxMemAllocated=19.52GB\n"
        " iteration        9/     100 | consumed samples:         2304 | consumed tokens:      9437184 | "
        "elapsed time per iteration (ms): 2000.0 | learning rate: 2.4E-04 | global batch size:   256 | "
        "lm loss: 5.9E+00 | loss scale: 8192.0 | actual seqlen:  4096 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 | samples per second: 128.0 | tokens per gpu per second (tgs): 1146.7 | "
        "TFLOPs: 69.85 |",
        {
            "step": 9,
            "total": 100,
            "loss": 5.9,
            "samples_per_s": 128.0,
            "tokens_per_s_gpu": 1146.7,
            "tflops_gpu": 69.85,
            "step_s": 2.0,
        },
    ),
    "megatron-bridge": (
        MEGATRON.format(step=7, samples=1792).replace(" [2026-01-02 03:04:05] ", "")
        + "\nStep Time : 1.23s GPU utilization: 401.2MODEL_TFLOP/s/GPU",
        {"step": 7, "total": 5000, "loss": 2.718282, "step_s": 1.2345, "grad_norm": 0.577},
    ),
    "nemo2": (
        "(train, pid=12) Training epoch 0, iteration 20/999 | lr: 3e-06 | global_batch_size: 512 | global_step: 20 | "
        "reduced_train_loss: 9.25 | train_step_timing in s: 4.0 | consumed_samples: 10752",
        {"step": 20, "total": 999, "loss": 9.25, "lr": 3e-6, "step_s": 4.0, "samples_per_s": 128.0},
    ),
    "bionemo": (
        "loss: 2.94, learning_rate: 3e-05, grad_norm: 1.23, step_time: 0.456, tokens_per_second_per_gpu: 4.85e+04, "
        "unpadded_tokens_per_second_per_gpu: 4.5e+04, global_step: 100",
        {"step": 100, "loss": 2.94, "lr": 3e-5, "grad_norm": 1.23, "step_s": 0.456, "tokens_per_s_gpu": 48500.0},
    ),
    "torchtitan": (
        "[rank0]:[titan] 2026-05-18 16:04:40,000 - root - INFO - Training starts at step 1, with local batch size 2, "
        "global batch size 16, sequence length 8192, total steps 1000 (warmup 200)\n"
        "[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - \x1b[31mstep: 14  \x1b[32mloss:  3.24405  "
        "\x1b[38;2;180;60;0mgrad_norm:  0.8319  \x1b[33mmemory:  9.46GiB(64.99%)  \x1b[34mtps: 7,282  "
        "\x1b[36mtflops: 320.5  \x1b[35mmfu: 41.50%\x1b[39m\n"
        "[rank0]:[titan] 2026-05-18 16:04:47,000 - root - INFO - validate step: 14  loss:  9.0000",
        {"step": 14, "total": 1000, "loss": 3.24405, "grad_norm": 0.8319, "tokens_per_s_gpu": 7282.0, "mfu": 0.415},
    ),
    "verl": (
        "(TaskRunner pid=16) step:0 - val-core/gsm8k/acc/mean@1:0.508\n"
        "(TaskRunner pid=16) step:2 - actor/pg_loss:0.125 - actor/grad_norm:0.069 - actor/lr:1e-06 - "
        "timing_s/step:96.551 - perf/throughput:512.5\n"
        "Training Progress:   0%|          | 2/624 [10:00<103:53:21, 600.32s/it]",
        {
            "step": 2,
            "total": 624,
            "loss": 0.125,
            "grad_norm": 0.069,
            "lr": 1e-6,
            "step_s": 96.551,
            "tokens_per_s_gpu": 512.5,
        },
    ),
    "picotron": (
        "[rank 2] Step: 3     | Loss: 8.9219 | Global batch size:   2.05K | Tokens/s:  10.61K | "
        "Tokens/s/GPU:   1.33K | Tokens:   6.14K | MFU:  0.43% | Memory usage:   1.75GB",
        {"step": 3, "loss": 8.9219, "tokens_per_s": 10610.0, "tokens_per_s_gpu": 1330.0, "mfu": 0.0043},
    ),
    "llm-foundry": (
        "0: [batch=366/48000]:\n0: \t Train time/batch: 365\n0: \t Train loss/train/total: 10.3750\n"
        "0: \t Train throughput/batches_per_sec: 0.5\n0: \t Train throughput/tokens_per_sec: 20082.8418\n"
        "0: \t Train l2_norm/grad/global: 1.5\n0: \t Train lr-DecoupledAdamW/group0: 0.0003",
        {
            "step": 366,
            "total": 48000,
            "loss": 10.375,
            "tokens_per_s": 20082.8418,
            "step_s": 2.0,
            "grad_norm": 1.5,
            "lr": 0.0003,
        },
    ),
    "hf-trainer": (
        "[INFO|trainer.py:2136] 2026-07-17 00:18:20,685 >>   Total optimization steps = 97\n"
        "Loading shards: 100%|██████████| 4/4 [00:01<00:00,  3.1it/s]\n"
        "\r 16%|█▋        | 16/97 [01:42<08:31,  6.40s/it]\n"
        "{'loss': 2.9859, 'grad_norm': 0.97, 'learning_rate': 4.1e-05, 'epoch': 0.16}\n",
        {"step": 16, "total": 97, "loss": 2.9859, "grad_norm": 0.97, "lr": 4.1e-5, "step_s": 6.4},
    ),
    "fairseq": (
        "2026-07-17 07:11:02 | INFO | train_inner | epoch 001:   2800 / 160368 loss=9.255, ppl=611.12, wps=57300, "
        "ups=0.5, wpb=1613, bsz=80, num_updates=2800, lr=2.8e-05, gnorm=3.23, train_wall=13, wall=1236",
        {"step": 2800, "loss": 9.255, "tokens_per_s": 57300.0, "step_s": 2.0, "lr": 2.8e-5, "grad_norm": 3.23},
    ),
    "maxtext": (
        "I0706 16:50:26.257925 140110937163584 metric_logger.py:214] completed step: 2, seconds: 0.570, "
        "TFLOP/s/device: 37.633, Tokens/s/device: 7185.042, total_weights: 5480, loss: 0.693, lm_loss: 0.000",
        {"step": 2, "loss": 0.693, "step_s": 0.57, "tflops_gpu": 37.633, "tokens_per_s_gpu": 7185.042},
    ),
    "dino": (
        "Epoch: [3/100]  [ 1320/25690]  eta: 5:30:18  loss: 3.157086 (3.156335)  lr: 0.000305 (0.000303)  "
        "wd: 0.040826 (0.040813)  time: 1.155825  data: 0.001296  max mem: 14004",
        {"step": 78390, "total": 2569000, "loss": 3.157086, "lr": 0.000305, "step_s": 1.155825},
    ),
    "neuronx-distributed": (
        "step 7 step_time 286.1s throughput 2.61 seq/s loss 1.69 grad norm 10.875\n"
        "[0]:LOG Wed Dec  6 21:17:13 2026 - (0, 8) step_loss : 10.5 learning_rate : 4.50e-07 throughput : 2.64 "
        "param_norm : 1536.0 grad-norm : 8.125",
        {"step": 8, "loss": 10.5, "lr": 4.5e-7, "samples_per_s": 2.64, "grad_norm": 8.125},
    ),
    "reference-fsdp": (
        "0: 2026-06-17 16:24:55 I [train.py:103] Batch 1 Loss: 11.64398, Speed: 10.90 samples/sec, lr: 0.000100",
        {"step": 1, "loss": 11.64398, "samples_per_s": 10.9, "lr": 1e-4},
    ),
    "reference-ddp": (
        "[RANK 0] Epoch 12 | Batchsize: 32 | Steps: 8 | Loss: 0.0413\n[RANK 1] Epoch 12 | Batchsize: 32 | Steps: 8",
        {"step": 96, "loss": 0.0413},
    ),
    "paxml": (
        "I0101 00:00:00.000000 14 summary_utils.py:635] Metrics values at step 100:\n"
        "I0101 00:00:00.000000 14 summary_utils.py:636]   loss=7.412000",
        {"step": 100, "loss": 7.412},
    ),
    "trainwright": (
        "[rank0]: step  12/500  \x1b[1mloss   2.3451\x1b[0m  norm   1.234  lr 1.00e-03  8.12 ktok/s  mfu 40.0%  "
        "mem   1.0 GB  wait 0.1%  eta 3m07s",
        {"step": 12, "total": 500, "loss": 2.3451, "grad_norm": 1.234, "lr": 1e-3, "tokens_per_s": 8120.0, "mfu": 0.4},
    ),
    "lightning": (
        "Epoch 2:  12%|█▏        | 120/1000 [00:10<01:20, 10.0it/s, v_num=0, train_loss=2.310]",
        {"step": 2120, "loss": 2.31, "step_s": 0.1},
    ),
    "deepspeed": (
        "[2026-07-25 21:03:21,037] [INFO] [logging.py:96:log_dist] [Rank 0] step=35, skipped=0, lr=[2.1e-06, 2.1e-06], "
        "mom=[[0.9, 0.95], [0.9, 0.95]]\n"
        "[2026-07-25 21:03:21,269] [INFO] [timer.py:215:stop] epoch=0/micro_step=35/global_step=35, "
        "RunningAvgSamplesPerSec=7.8, CurrSamplesPerSec=8.0, MemAllocated=59.65GB, MaxMemAllocated=63.31GB",
        {"step": 35, "lr": 2.1e-6, "samples_per_s": 8.0},
    ),
    "json": (
        'starting\n[rank0]:{"step": 3, "total": 10, "loss": 1.5, "samples_per_s": 12.0, "lr": 0.001}',
        {"step": 3, "total": 10, "loss": 1.5, "samples_per_s": 12.0, "lr": 0.001},
    ),
}


def assert_says(record: StepRecord, expected: dict[str, object]) -> None:
    for name, value in expected.items():
        assert getattr(record, name) == pytest.approx(value), (name, record)


def test_every_framework_has_a_sample() -> None:
    assert set(frameworks()) == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_last_step_is_read(name: str) -> None:
    text, expected = SAMPLES[name]
    reader = LogReader()
    records = [*reader.feed(text), *reader.close()]
    assert reader.framework == name
    assert_says(records[-1], expected)


@pytest.mark.parametrize("name", SAMPLES)
def test_prefixes_of_ranks_and_other_output_do_not_matter(name: str) -> None:
    text, expected = SAMPLES[name]
    noise = "NCCL INFO NET/OFI Selected provider is efa\nWARNING: something about step and loss\n"
    labelled = "".join(
        f"3: {line}\n" if line.strip() and "%|" not in line else line + "\n" for line in text.split("\n")
    )
    records = read_log([noise, *labelled.splitlines(keepends=True), noise])
    assert_says(records[-1], expected)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_log_may_arrive_in_any_pieces(name: str) -> None:
    text, expected = SAMPLES[name]
    for size in (1, 7, 64):
        reader = LogReader()
        records = [r for at in range(0, len(text), size) for r in reader.feed(text[at : at + size])]
        assert_says([*records, *reader.close()][-1], expected)


def test_ranks_that_print_the_same_step_count_once() -> None:
    line = "{}: 2026-01-01 00:00:00,000 - root - INFO - step: {:2d}  loss:  3.4  memory: 1.0GiB(2%)  tps: {}"
    order = [(0, 1), (1, 1), (1, 2), (0, 2), (0, 3), (2, 1), (2, 2), (1, 3)]
    records = read_log(line.format(rank, step, 100 + rank) for rank, step in order)
    assert [r.step for r in records] == [1, 2, 3]


def test_a_run_that_resumes_goes_back() -> None:
    steps = [*range(1, 60), *range(50, 70)]
    records = read_log(MEGATRON.format(step=step, samples=step) for step in steps)
    assert [r.step for r in records] == steps


def test_a_skipped_step_has_no_loss() -> None:
    line = " iteration        1/     100 | consumed samples:          288 | elapsed time per iteration (ms): 25.5 | "
    record = read_log([line + "learning rate: 0.0E+00 | global batch size:   288 | loss scale: 4294967296.0 |"])[0]
    assert (record.step, record.loss, record.grad_norm, record.lr) == (1, None, None, 0.0)


def test_a_loss_that_is_not_a_number_is_said() -> None:
    record = read_log([MEGATRON.format(step=1, samples=1).replace("2.718282E+00", "nan")])[0]
    assert record.loss is not None
    assert math.isnan(record.loss)


def test_progress_bars_of_evaluation_are_not_steps() -> None:
    text = (
        "\r 10%|█         | 10/100 [00:10<01:30,  1.00s/it]\n{'loss': 2.0, 'epoch': 0.1}\n"
        "\r 50%|█████     | 4/8 [00:01<00:01,  4.0it/s]\n{'eval_loss': 1.9, 'epoch': 0.1}\n"
        "\r 20%|██        | 20/100 [00:20<01:20,  1.00s/it]\n{'loss': 1.5, 'epoch': 0.2}\n"
    )
    assert [(r.step, r.loss) for r in read_log([text])] == [(10, 2.0), (20, 1.5)]


def test_without_a_progress_bar_the_step_comes_from_the_epoch() -> None:
    text = [
        ">>   Num Epochs = 3\n>>   Total optimization steps = 300\n",
        "{'loss': 2.0, 'epoch': 0.5}\n",
        "{'loss': 1.0, 'epoch': 1.0}\n",
    ]
    assert [(r.step, r.estimated) for r in read_log(text)] == [(50, True), (100, True)]


def test_rates_of_a_gpu_become_those_of_the_job() -> None:
    records = read_log([SAMPLES["torchtitan"][0]], gpus=16)
    assert records[-1].tokens_per_s == 7282 * 16
    assert read_log([SAMPLES["nemo2"][0]], sequence=4096)[-1].tokens_per_s == pytest.approx(128 * 4096)


def test_lines_that_only_look_like_progress_are_left() -> None:
    assert (
        read_log(["{'step': 1}", '{"event": "saved", "step": 3}', '{"step": "x", "loss": 1}', '{"step": true}']) == []
    )
    assert read_log(["Downloading: 100%|████| 3/3 [00:01<00:00, 2.0it/s]", "Epoch 3 done", "step 4 of the guide"]) == []


WORDS = [entry.hint for entry in formats()] + [text for text, _ in SAMPLES.values()]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.text(), st.sampled_from(WORDS), st.binary().map(lambda b: b.decode("latin-1")))))
def test_garbage_never_fails(pieces: list[str]) -> None:
    reader = LogReader()
    for piece in pieces:
        list(reader.feed(piece))
    list(reader.close())


def test_damaged_lines_never_fail() -> None:
    source = random.Random(0)
    for text, _ in SAMPLES.values():
        for _ in range(200):
            letters = list(text)
            for _ in range(source.randrange(1, 8)):
                letters[source.randrange(len(letters))] = source.choice("0123456789eE.-+/|[]{}'\",: \r\n\x1b\x00é")
            read_log(["".join(letters), "9" * 5000, text.replace("1", "9" * 400)])


@pytest.mark.parametrize(
    "unit",
    ["9", "1,", "1.", " ", "| ", "1e", "-", "loss: ", "step: 1  ", "Epoch 1: | 1/1 [ loss ", "Epoch 1/1  1/1 ",
     "global_step=1 reduced_train_loss= ", "LOG - (1, 1) ", "[RANK 1] Epoch 1 | ", "Train lr-x"],
)  # fmt: skip
def test_no_line_takes_long(unit: str) -> None:
    """A pattern that backtracks would need minutes for one of these."""
    line = (unit * 16_000)[:16_000]
    began = time.process_time()
    for entry in formats():
        entry.line(line)
        entry.values(line)
    assert time.process_time() - began < 5


def test_a_rich_progress_bar_of_lightning() -> None:
    line = "Epoch 3/9 ━━━━╸━━━ 120/1000 0:00:10 • 0:01:20 11.9it/s v_num: 0 train_loss: 2.31"
    record = read_log([line])[0]
    assert (record.framework, record.step, record.total, record.loss) == ("lightning", 3120, 10_000, 2.31)


def test_a_long_log_is_read_quickly() -> None:
    quiet = "12: NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM/read and a few more words of no interest here\n"
    text = "".join(quiet * 9 + MEGATRON.format(step=step, samples=step) + "\n" for step in range(1, 10_001))
    reader = LogReader()
    began = time.process_time()
    count = sum(1 for at in range(0, len(text), 65536) for _ in reader.feed(text[at : at + 65536]))
    seconds = time.process_time() - began
    assert count == 10_000
    assert 100_000 / seconds > 100_000, f"{100_000 / seconds:.0f} lines/s"


def test_steps_that_are_faster_than_their_progress_bar_are_all_counted() -> None:
    line = "{{'loss': '{loss}', 'grad_norm': '1.0', 'learning_rate': '0.001', 'epoch': '0.1'}}"
    bar = "\r {step}%|#  | {step}/6 [00:00<00:00, 29.2it/s]"
    text = bar.format(step=0)
    for step in range(1, 7):  # tqdm draws at most ten bars a second, and one more below every line
        fresh = bar.format(step=step) if step in (2, 5) else ""
        text += f"{fresh}\r{line.format(loss=7 - step)}\n{bar.format(step=step)}"
    records = read_log(text.splitlines(keepends=True))
    assert [(record.step, record.loss, record.estimated) for record in records] == [
        (step, 7 - step, False) for step in range(1, 7)
    ]
