"""The line about the data that a run prints counts tokens as its metrics do."""

import re

import pytest
from single import corpus, metrics, run
from test_finetuning import base_folder, pair_data

from trainwright.report.run_report.summary import _data_set
from trainwright.train.config import TrainConfig


@pytest.mark.parametrize(
    ("objective", "noun"), [("dpo", "pairs"), ("span_corruption", "samples"), ("classify", "images")]
)
def test_the_line_about_the_data_counts_tokens_as_the_metrics_do(objective, noun, tmp_path, capsys):
    model, data, base, sequence = {
        "dpo": lambda: (str(base_folder(tmp_path)), pair_data(tmp_path), str(tmp_path / "base"), 64),
        "span_corruption": lambda: ("t5-v1.1-small-debug", corpus(tmp_path), "", 64),
        "classify": lambda: ("vit-s-16-debug", "builtin:textures", "", 0),
    }[objective]()
    config = TrainConfig(
        model=model, base=base, data=(data,), objective=objective, sequence=sequence, batch=2, micro_batch=2, steps=1,
        checkpoint_every="never", watchdog=0, folder=str(tmp_path / "run"),
    )  # fmt: skip
    run(config)
    out = "".join(capsys.readouterr())
    line = re.search(rf"data: [\d,]+ {noun} of ([\d,]+) tokens; 2 {noun} = ([\d,]+) tokens per step", out)
    assert line is not None, out
    each, step = (int(number.replace(",", "")) for number in line.groups())
    (tmp_path / "run" / "logs").mkdir(exist_ok=True)
    (tmp_path / "run" / "logs" / "rank-0.log").write_text(line[0])
    assert f"{_data_set(tmp_path / 'run'):,} {noun}" in line[0]
    assert metrics(config)[0]["tokens"] == step == 2 * each
