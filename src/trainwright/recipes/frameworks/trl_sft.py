"""Supervised fine-tuning with TRL, of all weights or of LoRA adapters. Data: rows with `messages`, or with `prompt` and
`completion`; only the answer is learned."""

from __future__ import annotations

import hf_models
import hf_training
from entry_common import parsed, rows


def main() -> None:
    parser = hf_training.options(__doc__ or "")
    parser.add_argument("--lora-rank", type=int, default=0, help="rank of the adapters; 0 trains all weights")
    given = parsed(parser)

    from datasets import Dataset
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(
        **hf_training.arguments(given), max_length=given.sequence, packing=False, dataset_num_proc=None,
    )  # fmt: skip
    adapters = LoraConfig(r=given.lora_rank, lora_alpha=2 * given.lora_rank, target_modules="all-linear")
    trainer = SFTTrainer(
        model=hf_models.causal_model(given.model),
        args=config,
        train_dataset=Dataset.from_list(rows(given.data, "chats")),
        processing_class=hf_models.tokenizer(given.model),
        peft_config=adapters if given.lora_rank else None,
    )
    hf_training.train(trainer)


if __name__ == "__main__":
    main()
