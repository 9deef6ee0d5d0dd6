"""A vision-language model with the Hugging Face Trainer: a vision encoder, a projector and a language model (LLaVA's
architecture), taught to describe images. Data: rows with `image` (a path) and `text`; built in: coloured squares."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import hf_models
import hf_training
from entry_common import is_builtin, parsed, rows

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220), "white": (240, 240, 240)}
PLACES = ("top left", "top right", "bottom left", "bottom right")


def main() -> None:
    given = parsed(hf_training.options(__doc__ or ""))

    from transformers import Trainer, TrainingArguments

    processor, model = debug_pair(given.model) if hf_models.is_debug(given.model) else pretrained_pair(given.model)
    examples = squares(given.seed) if is_builtin(given.data) else rows(given.data, "")
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**hf_training.arguments(given), remove_unused_columns=False),
        train_dataset=examples,
        data_collator=lambda batch: collate(batch, processor, model.config.image_token_id, given.sequence),
    )
    hf_training.train(trainer)


def collate(batch: list[dict[str, Any]], processor: Any, image_token: int, longest: int) -> Any:
    """Images and texts as tensors; the loss is on the text, not on the image's places or padding."""
    from PIL import Image

    images = [Image.open(row["image"]) if isinstance(row["image"], str | Path) else row["image"] for row in batch]
    texts = [f"{processor.image_token}{row['text']}{processor.tokenizer.eos_token}" for row in batch]
    inputs = processor(images=images, text=texts, padding=True, return_tensors="pt")
    if inputs["input_ids"].shape[1] > longest:
        raise SystemExit(f"a row of {inputs['input_ids'].shape[1]} tokens is longer than --sequence {longest}")
    labels = inputs["input_ids"].clone()
    labels[(labels == image_token) | (inputs["attention_mask"] == 0)] = -100
    inputs["labels"] = labels
    return inputs


def pretrained_pair(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    return AutoProcessor.from_pretrained(name), AutoModelForImageTextToText.from_pretrained(name, dtype="auto")


def debug_pair(name: str) -> tuple[Any, Any]:
    """A tiny LLaVA of random weights: 32 x 32 pixels in patches of 8, and bytes as tokens."""
    import torch
    from transformers import (
        CLIPImageProcessor,
        CLIPVisionConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
    )
    tokenizer = hf_models.tokenizer(name)
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    text = hf_models.debug_config("llama-debug", vocab_size=max(384, image_token + 1))
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=image_token)
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        tokenizer=tokenizer, patch_size=8, vision_feature_select_strategy="default", image_token="<image>",
        num_additional_image_tokens=1,
    )  # fmt: skip
    torch.manual_seed(0)  # the same weights on every rank and after every restart
    return processor, LlavaForConditionalGeneration(config)


def squares(seed: int) -> list[dict[str, object]]:
    """Images of one coloured square each, with what they show."""
    from PIL import Image

    dice = random.Random(seed)
    examples: list[dict[str, object]] = []
    for _ in range(400):
        colour, place = dice.choice(sorted(COLOURS)), dice.randrange(4)
        image = Image.new("RGB", (32, 32))
        left, top = 16 * (place % 2), 16 * (place // 2)
        image.paste(COLOURS[colour], (left + 3, top + 3, left + 13, top + 13))
        examples.append({"image": image, "text": f"a {colour} square, {PLACES[place]}"})
    return examples


if __name__ == "__main__":
    main()
