"""Distillation by logits: the student learns the teacher's distribution over the next token (KL divergence at a
temperature) beside the text itself. A Hugging Face Trainer with another loss."""

from __future__ import annotations

from typing import Any

import hf_models
import hf_training
from entry_common import parsed


def main() -> None:
    parser = hf_training.options(__doc__ or "")
    parser.add_argument("--teacher", required=True, help="the model to learn from; it needs the student's tokenizer")
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--alpha", type=float, default=0.5, help="share of the teacher in the loss")
    given = parsed(parser)

    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

    class Distillation(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
            return distillation_loss(self, model, inputs, return_outputs)

    tokenizer = hf_models.tokenizer(given.model)
    trainer = Distillation(
        model=hf_models.causal_model(given.model),
        args=TrainingArguments(**hf_training.arguments(given)),
        train_dataset=hf_models.sequences(given, tokenizer),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.teacher = hf_models.causal_model(given.teacher).to(trainer.args.device).eval().requires_grad_(False)
    trainer.temperature, trainer.alpha = given.temperature, given.alpha
    trainer.model_accepts_loss_kwargs = False  # the loss is a mean: the Trainer divides by the micro batches of a step
    hf_training.train(trainer)


def distillation_loss(trainer: Any, model: Any, inputs: Any, return_outputs: bool) -> Any:
    """The mean of both losses over the tokens that count; padding counts in neither."""
    import torch
    from torch.nn import functional as F

    output = model(**inputs)
    with torch.no_grad():
        taught = trainer.teacher(**{name: value for name, value in inputs.items() if name != "labels"}).logits
    shown = inputs["labels"][:, 1:] != -100
    student = F.log_softmax(output.logits[:, :-1][shown].float() / trainer.temperature, dim=-1)
    teacher = F.log_softmax(taught[:, :-1][shown].float() / trainer.temperature, dim=-1)
    divergence = F.kl_div(student, teacher, log_target=True, reduction="batchmean") * trainer.temperature**2
    loss = trainer.alpha * divergence + (1 - trainer.alpha) * output.loss
    return (loss, output) if return_outputs else loss


if __name__ == "__main__":
    main()
