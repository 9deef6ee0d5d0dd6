"""Masked language modelling of proteins with the Hugging Face Trainer: ESM-2, from random weights of its configuration,
over data parallel ranks or with FSDP."""

from __future__ import annotations

from typing import Any

import hf_models
import hf_training
from entry_common import RESIDUES, parsed, rows

# ESM-2's own vocabulary: special tokens, residues by frequency, rare ones, gap, mask.
VOCABULARY = ["<cls>", "<pad>", "<eos>", "<unk>", *RESIDUES, "X", "B", "U", "Z", "O", ".", "-", "<null_1>", "<mask>"]


def main() -> None:
    given = parsed(hf_training.options(__doc__ or ""))

    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

    proteins = tokenizer(given)
    chains = [str(row["text"]) for row in rows(given.data, "proteins")]
    trainer = Trainer(
        model=new_model(given),
        args=TrainingArguments(**hf_training.arguments(given)),
        train_dataset=[proteins(chain, truncation=True, max_length=given.sequence) for chain in chains],
        data_collator=DataCollatorForLanguageModeling(proteins, mlm_probability=0.15),
    )
    hf_training.train(trainer)


def new_model(given: Any) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM

    torch.manual_seed(given.seed)  # the same weights on every rank and after every restart
    config = _debug_config(given.model) if hf_models.is_debug(given.model) else AutoConfig.from_pretrained(given.model)
    return AutoModelForMaskedLM.from_config(config)


def _debug_config(name: str) -> Any:
    return hf_models.debug_config(name, vocab_size=len(VOCABULARY), pad_token_id=1, mask_token_id=len(VOCABULARY) - 1)


def tokenizer(given: Any) -> Any:
    """ESM-2's tokenizer, written from its vocabulary where none can be fetched."""
    from transformers import AutoTokenizer, EsmTokenizer

    if not hf_models.is_debug(given.model):
        return AutoTokenizer.from_pretrained(given.model)
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("\n".join(VOCABULARY))
        return EsmTokenizer(str(path))


if __name__ == "__main__":
    main()
