"""Chats and preferences as data: nothing is cut or left out without a word, and each objective gets its own kind."""

import json
from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.data import builtin
from trainwright.train.data.builtin import CHATS, builtin_folder
from trainwright.train.data.cli import main as data_main
from trainwright.train.data.loader import Options
from trainwright.train.models.shape import lookup
from trainwright.train.objectives import objective_for

SHORT = "ok"


def conversation(answer: str, question: str = "hi") -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def chat_file(folder: Path, *chats: list[dict[str, str]]) -> str:
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in chats))
    return str(path)


def pair_file(folder: Path, *pairs: tuple[list[dict[str, str]], list[dict[str, str]]]) -> str:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps({"chosen": one, "rejected": other}) + "\n" for one, other in pairs))
    return str(path)


def said_of(verb: str, path: str, sequence: int, folder: Path, capsys) -> str:
    assert data_main([verb, path, "-o", str(folder / "data"), "--sequence", str(sequence)]) == 0
    return capsys.readouterr().err


def test_chats_that_do_not_fit_a_row_are_counted(tmp_path, capsys):
    """A chat of the plain template has 17 tokens of user and 23 of assistant headers, and 2 ends."""
    late = conversation(SHORT, question="q" * 100)  # the answer begins past a row of 64
    path = chat_file(tmp_path, conversation(SHORT), conversation("x" * 200), late)
    said = said_of("chat", path, 64, tmp_path, capsys)
    assert "1 of 3 conversations is cut" in said
    assert "1 is left out, because its answer begins past the row" in said
    longest = 17 + 2 + 1 + 22 + 200 + 1
    assert f"the longest has {longest} tokens" in said
    assert f"--sequence {longest} keeps all whole" in said
    assert said_of("chat", path, longest, tmp_path / "whole", capsys) == ""


def test_pairs_that_do_not_fit_a_row_are_counted(tmp_path, capsys):
    late = (conversation(SHORT, "q" * 100), conversation("no", "q" * 100))
    cut = (conversation(SHORT), conversation("x" * 200))
    path = pair_file(tmp_path, (conversation(SHORT), conversation("no")), cut, late, late)
    said = said_of("pairs", path, 64, tmp_path, capsys)
    assert "1 of 4 pairs is cut" in said
    assert "2 are left out, because their answers begin past the row" in said
    assert "--sequence 243 keeps all whole" in said
    assert said_of("pairs", path, 243, tmp_path / "whole", capsys) == ""


@pytest.mark.parametrize("verb", ["chat", "pairs"])
def test_rows_too_short_for_every_answer_are_the_error(verb, tmp_path):
    one = conversation(SHORT)
    path = chat_file(tmp_path, one) if verb == "chat" else pair_file(tmp_path, (one, one))
    with pytest.raises(UserError, match="begins past a row of 8 tokens") as caught:
        data_main([verb, path, "-o", str(tmp_path / "data"), "--sequence", "8"])
    assert caught.value.fix == "--sequence 45"
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_chats_without_an_answer_are_counted_and_alone_are_the_error(tmp_path, capsys):
    question = [{"role": "user", "content": "hi"}]
    said = said_of("chat", chat_file(tmp_path, question, conversation(SHORT)), 64, tmp_path, capsys)
    assert "1 of 2 conversations has no message of the assistant and is left out" in said
    with pytest.raises(UserError, match="hold no conversation with a message of the assistant") as caught:
        data_main(["chat", chat_file(tmp_path, question), "-o", str(tmp_path / "none"), "--sequence", "64"])
    assert '"assistant"' in caught.value.fix


def test_built_in_chats_in_rows_too_short_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match="begins past a row of 8 tokens") as caught:
        builtin_folder(CHATS, 8)
    assert caught.value.where == CHATS
    assert list((tmp_path / "trainwright").iterdir()) == []


def test_an_unlearned_end_that_is_cut_off_is_no_loss(tmp_path, capsys):
    """What follows the last answer teaches nothing."""
    chat = [*conversation(SHORT), {"role": "user", "content": "x" * 200}]
    assert said_of("chat", chat_file(tmp_path, chat), 64, tmp_path, capsys) == ""


def prepared(verb: str, folder: Path) -> str:
    """Sixty chats, or as many pairs, in rows of 64 tokens."""
    rows = [conversation(f"{n}!") for n in range(60)]
    path = chat_file(folder, *rows) if verb == "chat" else pair_file(folder, *zip(rows[1:], rows, strict=False))
    assert data_main([verb, path, "-o", str(folder / verb), "--sequence", "64"]) == 0
    return str(folder / verb)


def opened(objective: str, data: str, sequence: int = 64, model: str = "llama3.2-1b-debug", share: float = 0.0):
    """The samples of a run with this objective."""
    config = TrainConfig(model=model, objective=objective, data=(data,), sequence=sequence, base="x", mask_rate=0.15)
    options = Options(sequence, holdout=share)
    return objective_for(config, lookup(model)).open_data([data], options, None, held=False)


@pytest.mark.parametrize(
    ("verb", "objective", "model", "fix"),
    [
        ("pairs", "sft", "llama3.2-1b-debug", "--objective dpo, or chats of `trainwright data chat`"),
        ("chat", "dpo", "llama3.2-1b-debug", "--objective sft, or pairs of `trainwright data pairs`"),
        ("chat", "causal_lm", "llama3.2-1b-debug", "--objective sft, or text of `trainwright data prepare`"),
        ("pairs", "", "llama3.2-1b-debug", "--objective dpo, or text of `trainwright data prepare`"),
        ("chat", "mlm", "roberta-base-debug", "text of `trainwright data prepare`"),
        ("pairs", "span_corruption", "t5-v1.1-small-debug", "text of `trainwright data prepare`"),
    ],
)
def test_an_objective_refuses_data_of_another_kind(verb, objective, model, fix, tmp_path):
    data = prepared(verb, tmp_path)
    with pytest.raises(UserError, match=f"the data holds {'chats' if verb == 'chat' else 'pairs'}, and ") as caught:
        opened(objective, data, model=model)
    assert caught.value.where == data
    assert caught.value.fix == fix


@pytest.mark.parametrize(("verb", "objective"), [("chat", "sft"), ("pairs", "dpo")])
def test_an_objective_takes_its_own_kind(verb, objective, tmp_path):
    data = prepared(verb, tmp_path)
    assert opened(objective, data).epoch_samples > 0
    with pytest.raises(UserError, match="rows of 64 tokens, but --sequence is 8192") as caught:
        opened(objective, data, sequence=8192)
    assert caught.value.fix == "--sequence 64"
    path = Path(data) / "manifest.json"
    path.write_text(path.read_text().replace('"holds": ', '"once": '))  # as earlier versions wrote it
    for name in ("sft", "dpo", "causal_lm"):
        with pytest.raises(UserError, match="an earlier version") as caught:
            opened(name, data)
        assert "data chat" in caught.value.fix


def test_text_is_no_chat(tmp_path):
    (tmp_path / "text.txt").write_text("some text " * 100)
    assert data_main(["prepare", str(tmp_path / "text.txt"), "-o", str(tmp_path / "text"), "--workers", "1"]) == 0
    for objective, noun, verb in (("sft", "chats", "chat"), ("dpo", "pairs", "pairs")):
        with pytest.raises(UserError, match=f"the data holds no {noun}") as caught:
            opened(objective, str(tmp_path / "text"))
        assert caught.value.fix == f"`trainwright data {verb}` prepares them; builtin:{noun} is there to try"


@pytest.mark.parametrize(
    ("objective", "data", "fix"),
    [
        ("dpo", "builtin:chats", "--objective sft, or builtin:pairs"),
        ("sft", "builtin:pairs", "--objective dpo, or builtin:chats"),
        ("causal_lm", "builtin:chats", "--objective sft, or builtin:stdlib"),
        ("sft", "builtin:proteins", "builtin:chats"),
        ("dpo", "builtin:stdlib", "builtin:pairs"),
        ("sft", "builtin:textures", "builtin:chats"),
        ("causal_lm", "builtin:textures", "builtin:stdlib"),
        ("dpo", "builtin:pair", "builtin:pairs"),
        ("sft", "builtin:nothing-like-it", "builtin:chats"),
    ],
)
def test_built_in_data_of_another_kind_names_what_fits(objective, data, fix):
    with pytest.raises(UserError) as caught:
        opened(objective, data)
    assert caught.value.fix == fix
    assert data in str(caught.value)


def test_built_in_chats_can_be_mixed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(builtin, "docstrings", lambda: ((f"f{n}", "does it") for n in range(50)))
    assert opened("sft", "builtin:chats:2", sequence=128).epoch_samples > 0
    assert opened("dpo", "builtin:pairs:2", sequence=128).epoch_samples == 49
