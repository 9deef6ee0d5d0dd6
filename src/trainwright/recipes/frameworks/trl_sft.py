"""Supervised fine-tuning with TRL, of all weights or of LoRA adapters. Data: rows with `messages`, or with `prompt` and
`completion`; only the answer is learned."""

from __future__ import annotations

import hf_models
import hf_training
from entry_common import parsed, rows


def main() -> None:
    parser = hf_training.options(__doc__ or "")
    parser.add_argument("--lora-rank", type=int, default=0, help="rank of the adapters; 0 trains all weights")
    parser.add_argument("--base-bits", type=int, choices=(16, 8, 4), default=16, help="of a frozen weight; 4: QLoRA")
    given = parsed(parser)
    if given.base_bits < 16 and not given.lora_rank:
        parser.error("--base-bits goes with --lora-rank: weights that are trained are not kept as codes")

    from datasets import Dataset
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(
        **hf_training.arguments(given), max_length=given.sequence, packing=False, dataset_num_proc=None,
    )  # fmt: skip
    adapters = LoraConfig(r=given.lora_rank, lora_alpha=2 * given.lora_rank, target_modules="all-linear")
    trainer = SFTTrainer(
        model=hf_models.causal_model(given.model, given.base_bits),
        args=config,
        train_dataset=Dataset.from_list(rows(given.data, "chats")),
        processing_class=hf_models.tokenizer(given.model),
        peft_config=adapters if given.lora_rank else None,
    )
    hf_training.train(trainer)


if __name__ == "__main__":
    main()
