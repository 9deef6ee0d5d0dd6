"""Chat templates from the data to the exported model, and templates that fail."""

import json
from pathlib import Path

import pytest
import torch
from test_finetuning import INDENTED, SHAPE, merging_bpe

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.data.chat import prepare_chats, prepare_pairs
from trainwright.train.data.chat_template import open_template, render
from trainwright.train.data.loader import Options
from trainwright.train.data.prepare import prepare
from trainwright.train.models.hf_tokenizer import export_tokenizer, token_ids
from trainwright.train.objectives import objective_for
from trainwright.train.record import Record
from trainwright.train.world import World

ROW = 256
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def tokenizer_folder(folder: Path, template: str = TEMPLATE, **settings: str) -> Path:
    folder.mkdir(parents=True)
    merging_bpe(folder / "tokenizer.json")
    values = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", **settings}
    if template:
        values["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder


def rows(folder: Path) -> list[str]:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps({"messages": INDENTED, "chosen": INDENTED, "rejected": INDENTED[:2]}) + "\n")
    return [str(path)]


def exported(folder: Path, data: Path, objective: str, base: str = "") -> Path:
    """The tokenizer files that an export of a run on this data would have."""
    config = TrainConfig(
        model="llama3.2-1b-debug", objective=objective, data=(str(data),), base=base, sequence=ROW,
        folder=str(folder / "run"),
    )  # fmt: skip
    way = objective_for(config, SHAPE)
    samples = way.open_data(config.data, Options(ROW), None, held=False)
    record = Record(config, way, World(0, 1, 0, torch.device("cpu")))
    record.keep_tokenizer(samples.tokenizer(), samples.tokenizer_settings())
    record.close()
    (folder / "hf").mkdir()
    export_tokenizer(folder / "run", folder / "hf")
    return folder / "hf"


@pytest.mark.parametrize("objective", ["sft", "dpo"])
@pytest.mark.parametrize("spelling", ["settings", "file"])
def test_the_template_that_rendered_the_data_is_exported(objective, spelling, tmp_path):
    transformers = pytest.importorskip("transformers")
    source = tokenizer_folder(tmp_path / "tok", TEMPLATE if spelling == "settings" else "", pad_token="<|endoftext|>")
    if spelling == "file":
        (source / "chat_template.jinja").write_text(TEMPLATE)
    act = prepare_chats if objective == "sft" else prepare_pairs
    act(rows(tmp_path), tmp_path / "data", str(source), ROW)
    hf = exported(tmp_path, tmp_path / "data", objective, base="x")
    ours = transformers.AutoTokenizer.from_pretrained(hf)
    assert ours.chat_template == TEMPLATE
    assert ours.pad_token == "<|endoftext|>"


@pytest.mark.parametrize("tokenizer", ["bytes", "file", "folder"])
def test_the_plain_layout_is_exported_as_a_template(tokenizer, tmp_path):
    """What the exported template renders is what was trained on."""
    transformers = pytest.importorskip("transformers")
    folder = tokenizer_folder(tmp_path / "tok", template="")
    name = {"bytes": "bytes", "file": str(folder / "tokenizer.json"), "folder": str(folder)}[tokenizer]
    prepare_chats(rows(tmp_path), tmp_path / "data", name, ROW)
    ours = transformers.AutoTokenizer.from_pretrained(exported(tmp_path, tmp_path / "data", "sft"))
    [trained] = render(open_template(name), INDENTED, "here")
    assert ours.decode(trained.tokens) == ours.apply_chat_template(INDENTED, tokenize=False)
    asked = ours.apply_chat_template(INDENTED[:1], tokenize=False, add_generation_prompt=True)
    first = trained.learned.index(1)
    assert ours.decode(trained.tokens[:first]) == asked


def test_text_keeps_the_template_of_the_base(tmp_path):
    transformers = pytest.importorskip("transformers")
    base = tokenizer_folder(tmp_path / "base")
    (base / "config.json").write_text(json.dumps({"bos_token_id": 7, "eos_token_id": 0}))
    (tmp_path / "text.txt").write_text("return x\n" * 400)
    prepare([str(tmp_path / "text.txt")], tmp_path / "data", str(base / "tokenizer.json"), workers=1, quiet=True)
    hf = exported(tmp_path, tmp_path / "data", "causal_lm", base=str(base))
    assert transformers.AutoTokenizer.from_pretrained(hf).chat_template == TEMPLATE
    assert token_ids(tmp_path / "run", None)["bos_token_id"] == 7


@pytest.mark.parametrize("verb", ["chat", "pairs"])
@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{% for m in messages %}{{ m.content + 1 }}{% endfor %}", "TypeError"),
        ("{{ messages[7].content.x }}", "no element 7"),
    ],
)
def test_a_template_that_refuses_a_chat_is_an_error_with_its_line(verb, template, what, tmp_path):
    pytest.importorskip("transformers")
    source = tokenizer_folder(tmp_path / "tok", template)
    act = prepare_chats if verb == "chat" else prepare_pairs
    with pytest.raises(UserError, match="the chat template cannot render this conversation: ") as caught:
        act(rows(tmp_path), tmp_path / "data", str(source), ROW)
    assert what in caught.value.what
    assert caught.value.where == f"{tmp_path / 'rows.jsonl'}: line 1"
    assert str(source) in caught.value.fix


def test_a_template_with_a_syntax_error_is_an_error_with_its_line(tmp_path):
    pytest.importorskip("transformers")
    source = tokenizer_folder(tmp_path / "tok", "{% for m in messages %}\n{{ m.content }\n{% endfor %}")
    with pytest.raises(UserError, match=r"the chat template is not valid Jinja: .* at line 2") as caught:
        prepare_chats(rows(tmp_path), tmp_path / "data", str(source), ROW)
    assert caught.value.where == str(source)
    assert caught.value.fix


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_settings_of_a_tokenizer_that_are_no_json_object_are_an_error(content, tmp_path):
    source = tokenizer_folder(tmp_path / "tok")
    (source / "tokenizer_config.json").write_text(content)
    with pytest.raises(UserError, match="not a JSON object") as caught:
        open_template(str(source))
    assert caught.value.where == str(source / "tokenizer_config.json")


def test_a_folder_that_transformers_cannot_read_is_an_error(tmp_path):
    pytest.importorskip("transformers")
    source = tokenizer_folder(tmp_path / "tok")
    (source / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="transformers cannot read this tokenizer") as caught:
        open_template(str(source))
    assert caught.value.where == str(source)
