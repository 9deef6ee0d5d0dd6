"""Fine-tuning: chats and their masks, LoRA against PEFT, DPO against its formula, from weights to an export."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from families import LR, peer_curve
from single import metrics, run

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.data.batch import IGNORED
from trainwright.train.data.chat import packed, prepare_chats, prepare_pairs
from trainwright.train.data.chat_samples import ChatSamples, PairSamples
from trainwright.train.data.chat_template import Rendered, open_template, render
from trainwright.train.data.loader import Loader, Options, SampleId
from trainwright.train.data.named import open_samples
from trainwright.train.data.tokenizer import train_bpe
from trainwright.train.models import convert, huggingface
from trainwright.train.models.initialise import initial_value
from trainwright.train.models.shape import lookup

SHAPE = replace(lookup("llama3.1-8b-debug"), name="tiny", layers=2, vocab=300)
ROW = 64


def base_folder(folder: Path) -> Path:
    """Weights of a small Llama as a Hugging Face folder."""
    read = {
        n: initial_value(SHAPE, n, s, 5, torch.device("cpu")) for n, s in huggingface.parameter_sizes(SHAPE).items()
    }
    huggingface.write_folder(SHAPE, read.__getitem__, folder / "base")
    return folder / "base"


def chats(folder: Path) -> Path:
    rows = []
    for n in range(40):
        turns = [("system", "be brief")] * (n % 2) + [("user", f"say {n}"), ("assistant", f"{n}!")]
        turns += [("user", "more"), ("assistant", "x" * (n % 9 + 1))] * (n % 3)
        rows.append({"messages": [{"role": role, "content": text} for role, text in turns]})
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "chats.jsonl"


def chat_data(folder: Path) -> str:
    prepare_chats([str(chats(folder))], folder / "chat", "bytes", 4 * ROW)
    return str(folder / "chat")


def settings(folder: Path, base: Path, data: str, **more) -> TrainConfig:
    values = {
        "model": str(base), "base": str(base), "data": (data,), "steps": 5, "sequence": 4 * ROW, "batch": 4,
        "micro_batch": 4, "lr": LR, "schedule": "linear", "min_lr": 1.0, "checkpoint_every": "5", "watchdog": 0,
        "folder": str(folder), **more,
    }  # fmt: skip
    return TrainConfig(**values)


def rows_of(names, options, count):
    samples = open_samples(names, options, kind=ChatSamples)
    return [Loader(samples, 4, 4).step(4 * n).microbatches[0] for n in range(count)]


def test_only_the_assistant_is_learned_and_no_conversation_is_cut(tmp_path):
    samples = open_samples([chat_data(tmp_path)], Options(4 * ROW, shuffle=False), kind=ChatSamples)
    texts = []
    for n in range(samples.epoch_samples):
        batch = samples.batch([samples.locate(n)])
        learned = batch.targets[0] != IGNORED
        for number in batch.documents[0].unique():
            here = batch.documents[0] == number
            said = bytes(t for t in batch.targets[0, here & learned].tolist() if t < 256).decode()
            if said:
                whole = bytes(t for t in batch.tokens[0, here].tolist() if t < 256).decode()
                assert whole.startswith(("<|im_start|>user", "<|im_start|>system"))
                texts.append(said)
    wanted = [f"{n}!" + "x" * (n % 9 + 1) * (n % 3) for n in range(40)]
    assert sorted(texts) == sorted(wanted)


def test_the_template_of_the_tokenizer_is_used(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = {w: n for n, w in enumerate(["<unk>", "</s>", "[user]", "[assistant]", "hi", "there", "you", "too"])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens(["</s>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", unk_token="<unk>")
    fast.chat_template = (
        "{% for m in messages %}[{{ m.role }}] {{ m.content }} </s> {% endfor %}"
        "{% if add_generation_prompt %}[assistant] {% endif %}"
    )
    fast.save_pretrained(tmp_path / "tok")
    template = open_template(str(tmp_path / "tok"))
    messages = [{"role": "user", "content": "hi there"}, {"role": "assistant", "content": "you too"}]
    [got] = render(template, messages, "here")
    assert got.tokens == [2, 4, 5, 1, 3, 6, 7, 1]
    assert got.learned == [0, 0, 0, 0, 0, 1, 1, 1]


def merging_bpe(path: Path) -> Path:
    """A BPE with tokens for the end of a line and the indentation after it."""
    train_bpe(["<|im_start|>assistant\n    return x\n\n\n        y\n"] * 50, 300, path)
    return path


INDENTED = [
    {"role": "user", "content": "a body"}, {"role": "assistant", "content": "    return x\n"},
    {"role": "user", "content": "more"}, {"role": "assistant", "content": "\n\n        y"},
]  # fmt: skip


def test_an_answer_that_would_merge_with_its_header_is_learned_whole(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    path = merging_bpe(tmp_path / "tokenizer.json")
    core = tokenizers.Tokenizer.from_file(str(path))
    header = core.encode("<|im_start|>assistant\n").ids
    assert core.encode("<|im_start|>assistant\n    return x\n").ids[: len(header)] != header
    [got] = render(open_template(str(path)), INDENTED, "here")
    assert (
        core.decode([t for t, here in zip(got.tokens, got.learned, strict=True) if here])
        == "    return x\n\n\n        y"
    )
    first = got.learned.index(1)
    assert got.tokens[first - len(header) : first] == header  # as in the prompt when the model is used
    (tmp_path / "rows.jsonl").write_text(
        "\n" + json.dumps({"messages": INDENTED, "chosen": INDENTED, "rejected": INDENTED[:2]}) + "\n \n"
    )
    prepare_chats([str(tmp_path / "rows.jsonl")], tmp_path / "chats", str(path), 128)
    prepare_pairs([str(tmp_path / "rows.jsonl")], tmp_path / "pairs", str(path), 128)


def test_a_template_that_shortens_earlier_answers_teaches_each_as_the_last(tmp_path):
    transformers = pytest.importorskip("transformers")
    core = pytest.importorskip("tokenizers").Tokenizer.from_file(str(merging_bpe(tmp_path / "bpe.json")))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|endoftext|>")
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}"
        "<think></think>{% endif %}{{ m.content }}<|endoftext|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    fast.save_pretrained(tmp_path / "tok")
    whole, first = render(open_template(str(tmp_path / "tok")), INDENTED, "here")

    def learned(one):
        return core.decode([t for t, m in zip(one.tokens, one.learned, strict=True) if m], skip_special_tokens=False)

    assert learned(whole) == "<think></think>\n\n        y<|endoftext|>"
    assert learned(first) == "<think></think>    return x\n<|endoftext|>"
    shortened = core.decode(whole.tokens, skip_special_tokens=False)
    assert "assistant\n    return x\n<|endoftext|>" in shortened  # the context of the second answer


def test_rows_are_filled_without_cutting():
    sizes = [70, 30, 50, 20, 90, 10, 40]
    rows = list(packed((Rendered([n] * size, [1] * size) for n, size in enumerate(sizes)), 100))
    assert sorted(len(one.tokens) for row in rows for one in row) == sorted(sizes)
    assert all(sum(len(one.tokens) for one in row) <= 100 for row in rows)
    assert len(rows) == 4


def packed_loss(batch):
    """Mean over the learned tokens, by transformers, one conversation at a time."""

    def loss(model):
        total = 0.0
        for row in range(len(batch.tokens)):
            for number in batch.documents[row].unique():
                here = batch.documents[row] == number
                targets = batch.targets[row, here]
                if (targets != IGNORED).any():
                    logits = model(input_ids=batch.tokens[row, here][None]).logits[0]
                    total = total + F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
        return total / (batch.targets != IGNORED).sum()

    return loss


@pytest.mark.shows("parity", "export", "curve", families=("sft",))
def test_sft_follows_transformers_step_by_step(tmp_path):
    transformers = pytest.importorskip("transformers")
    base, data = base_folder(tmp_path), chat_data(tmp_path)
    config = settings(tmp_path / "run", base, data, objective="sft")
    run(config)
    judge = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    batches = rows_of([data], Options(4 * ROW), 5)
    theirs = peer_curve(judge, [packed_loss(batch) for batch in batches])
    assert [row["loss"] for row in metrics(config)] == pytest.approx(theirs, abs=2e-5)
    assert_exported_as(judge, config)


def assert_exported_as(judge, config):
    """The weights that a run exports give the logits of a model that was trained beside it."""
    assert convert.export_main([config.folder, config.folder + "-hf"]) == 0
    mine = type(judge).from_pretrained(config.folder + "-hf", dtype=torch.float32)
    tokens = torch.randint(0, 300, (2, 20))
    assert torch.allclose(mine(tokens).logits, judge(tokens).logits, atol=1e-3)


@pytest.mark.shows("parity", "export", "curve", families=("lora",))
def test_lora_follows_peft_and_exports_to_it(tmp_path):
    """Same adapters, same curve; the exported folder loads into PEFT, and merged weights give the same logits."""
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    base, data = base_folder(tmp_path), chat_data(tmp_path)
    config = settings(tmp_path / "run", base, data, objective="sft", lora_rank=4, lora_alpha=8.0, lr=1e-2)
    start = settings(tmp_path / "start", base, data, objective="sft", lora_rank=4, lora_alpha=8.0, lr=0.0, steps=1,
                     checkpoint_every="1")  # fmt: skip
    for one in (start, config):
        run(one)
        assert convert.export_main([one.folder, one.folder + "-peft", "--adapter"]) == 0
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    judge = peft.PeftModel.from_pretrained(plain, start.folder + "-peft", is_trainable=True)
    batches = rows_of([data], Options(4 * ROW), 5)
    trained = torch.nn.ParameterList([p for p in judge.parameters() if p.requires_grad])
    assert len(trained) == SHAPE.layers * 7 * 2

    class Adapters(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.trained = trained

    theirs = peer_curve(Adapters(), [lambda _, b=b: packed_loss(b)(judge) for b in batches], lr=1e-2)
    ours = [row["loss"] for row in metrics(config)]
    assert ours == pytest.approx(theirs, abs=2e-5)
    assert ours[-1] < ours[0]
    convert.export_main([config.folder, config.folder + "-hf"])
    tokens = torch.randint(0, 300, (2, 20))
    merged = transformers.AutoModelForCausalLM.from_pretrained(config.folder + "-hf", dtype=torch.float32)
    again = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = peft.PeftModel.from_pretrained(again, config.folder + "-peft")
    assert torch.allclose(merged(tokens).logits, adapted(tokens).logits, atol=1e-4)
    assert torch.allclose(judge(tokens).logits, adapted(tokens).logits, atol=1e-3)


def pair_data(folder: Path) -> str:
    user = {"role": "user", "content": "pick"}
    texts = [{"chosen": f"good {n}", "rejected": "no" * (n % 4 + 1)} for n in range(30)]
    rows = [{k: [user, {"role": "assistant", "content": text}] for k, text in pair.items()} for pair in texts]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare_pairs([str(folder / "pairs.jsonl")], folder / "pairs", "bytes", ROW)
    return str(folder / "pairs")


def sequence_likelihood(model, row, targets):
    logs = model(input_ids=row[None]).logits[0].log_softmax(-1)
    learned = targets != IGNORED
    return logs[learned, targets[learned]].sum()


@pytest.mark.shows("parity", "export", "curve", families=("dpo",))
@pytest.mark.parametrize("lora", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_dpo_follows_its_formula_step_by_step(lora, tmp_path):
    transformers = pytest.importorskip("transformers")
    base, data = base_folder(tmp_path), pair_data(tmp_path)
    config = settings(tmp_path / "run", base, data, objective="dpo", sequence=ROW, dpo_beta=0.3, lora_rank=lora,
                      holdout=0.2, eval_every=5, lr=1e-2 if lora else LR)  # fmt: skip
    _, trainer = run(config)
    ours = [row["loss"] for row in metrics(config)]
    assert metrics(config)[-1]["scores"]["accuracy"] > 0.5
    assert ours[0] == pytest.approx(0.6931472, abs=1e-6)
    assert ours[-1] < ours[0]
    if lora:
        return
    policy, start = (transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32) for _ in range(2))
    samples = trainer.parts.loader.samples
    batches = [Loader(samples, 4, 4).step(4 * n).microbatches[0] for n in range(5)]

    def loss(batch):
        def of(model):
            total = 0.0
            for chosen in range(0, 8, 2):
                both = []
                for row in (chosen, chosen + 1):
                    tokens, targets = batch.tokens[row], batch.targets[row]
                    with torch.no_grad():
                        before = sequence_likelihood(start, tokens, targets)
                    both.append(sequence_likelihood(model, tokens, targets) - before)
                total = total - F.logsigmoid(0.3 * (both[0] - both[1]))
            return total / 4

        return of

    assert ours == pytest.approx(peer_curve(policy, [loss(batch) for batch in batches]), abs=2e-5)
    assert_exported_as(policy, config)


def test_both_answers_of_a_pair_start_at_position_0(tmp_path):
    options = Options(2 * ROW, isolate=False)
    batch = open_samples([pair_data(tmp_path)], options, kind=PairSamples).batch([SampleId(0, 0, 0), SampleId(0, 0, 1)])
    assert torch.equal(batch.positions, torch.arange(ROW).expand(4, -1))


def test_adapters_need_weights_and_their_own_checkpoints(tmp_path):
    base, data = base_folder(tmp_path), chat_data(tmp_path)
    with pytest.raises(UserError, match="without the weights"):
        run(replace(settings(tmp_path / "a", base, data, objective="sft", lora_rank=4), base=""))
    run(settings(tmp_path / "b", base, data, objective="sft"))
    with pytest.raises(UserError, match="lora_rank = 0, this run's model has lora_rank = 4"):
        run(settings(tmp_path / "b", base, data, objective="sft", lora_rank=4, steps=6))


def test_dpo_is_refused_under_plans_that_cut_layers(tmp_path):
    from trainwright.train.parallel.plan import ParallelPlan
    from trainwright.train.setup import require_trainable

    config = TrainConfig(model="llama3.2-1b-debug", data=("builtin:pairs",), objective="dpo", folder=str(tmp_path))
    with pytest.raises(UserError, match="only shards or replicates") as caught:
        require_trainable(config, ParallelPlan(tp=2), lookup(config.model))
    assert caught.value.fix == "shard=2"
