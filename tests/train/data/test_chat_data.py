"""Chats and preferences as data: nothing is cut or left out without a word, and each objective gets its own kind."""

import json
from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.train.data.builtin import CHATS, builtin_folder
from trainwright.train.data.cli import main as data_main

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
