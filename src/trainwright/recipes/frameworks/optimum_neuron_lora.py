"""Fine-tunes a language model with LoRA on Trainium through optimum-neuron: TrainingArguments on the command line, as
every script of the Hugging Face Trainer, and it goes on from its newest checkpoint after a requeue."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any


@dataclass
class LoraArguments:
    """What the trainer itself has no option for."""

    model_path: str = field(metadata={"help": "Folder or hub name of the model."})
    dataset_path: str = field(metadata={"help": "JSON lines with instruction, context and response."})
    sequence: int = field(default=1024, metadata={"help": "Tokens of a sample."})
    adapter_rank: int = field(default=16, metadata={"help": "Rank of the adapters."})
    adapter_alpha: int = field(default=16, metadata={"help": "Scale of the adapters."})


def as_text(sample: dict[str, str]) -> str:
    """One instruction as the model reads it."""
    parts = [f"### Instruction\n{sample['instruction']}"]
    if sample.get("context"):
        parts.append(f"### Context\n{sample['context']}")
    return "\n\n".join([*parts, f"### Answer\n{sample['response']}"])


def by_version(
    config: type[Any], trainer: type[Any], sequence: int, tokenizer: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The length and the tokenizer by the names that the installed version has for them: TRL renamed both."""
    length = "max_length" if "max_length" in {one.name for one in fields(config)} else "max_seq_length"
    reader = "processing_class" if "processing_class" in signature(trainer).parameters else "tokenizer"
    return {length: sequence}, {reader: tokenizer}


def main() -> None:
    import torch
    from datasets import load_dataset
    from optimum.neuron import NeuronHfArgumentParser, NeuronSFTConfig, NeuronSFTTrainer, NeuronTrainingArguments
    from optimum.neuron.models.training import NeuronModelForCausalLM
    from peft import LoraConfig
    from transformers import AutoTokenizer
    from transformers.trainer_utils import get_last_checkpoint

    own, training = NeuronHfArgumentParser((LoraArguments, NeuronTrainingArguments)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(own.model_path)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = NeuronModelForCausalLM.from_pretrained(own.model_path, training.trn_config, torch_dtype=torch.bfloat16)
    length, reader = by_version(NeuronSFTConfig, NeuronSFTTrainer, own.sequence, tokenizer)
    trainer = NeuronSFTTrainer(
        model=model,
        args=NeuronSFTConfig(packing=True, **length, **training.to_dict()),
        peft_config=LoraConfig(
            r=own.adapter_rank, lora_alpha=own.adapter_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        **reader,
        train_dataset=load_dataset("json", data_files=own.dataset_path, split="train"),
        formatting_func=as_text,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(training.output_dir))
    trainer.save_model()


if __name__ == "__main__":
    main()
