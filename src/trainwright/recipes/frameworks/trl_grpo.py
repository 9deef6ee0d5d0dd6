"""GRPO with TRL on problems whose answer can be checked: the reward is computed, not learned. Generation runs in the
training processes; no vLLM server has to be started first, or ended afterwards."""

from __future__ import annotations

import random
import re
from typing import Any

import hf_models
import hf_training
from entry_common import is_builtin, parsed, rows

NUMBER = re.compile(r"-?\d+")


def main() -> None:
    parser = hf_training.options(__doc__ or "")
    parser.add_argument("--generations", type=int, default=4, help="answers per prompt")
    given = parsed(parser)

    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        **hf_training.arguments(given), num_generations=given.generations, max_completion_length=given.sequence,
        use_vllm=False, beta=0.0,
    )  # fmt: skip
    problems = sums(given.seed) if is_builtin(given.data) else rows(given.data, "")
    trainer = GRPOTrainer(
        model=hf_models.causal_model(given.model),
        args=config,
        reward_funcs=[correct, is_digits],
        train_dataset=Dataset.from_list(problems),
        processing_class=hf_models.tokenizer(given.model),
    )
    hf_training.train(trainer)


def correct(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """1 where the first number of the completion is the answer."""
    numbers = [NUMBER.search(text) for text in completions]
    return [float(n is not None and n[0] == right) for n, right in zip(numbers, answer, strict=True)]


def is_digits(completions: list[str], **_: Any) -> list[float]:
    """The share of digits: a signal before the first correct answer."""
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]


def sums(seed: int) -> list[dict[str, object]]:
    dice = random.Random(seed)
    pairs = [(dice.randint(0, 9), dice.randint(0, 9)) for _ in range(200)]
    return [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in pairs]


if __name__ == "__main__":
    main()
