"""What a sample passes through the model under each objective: the tokens of each pass, what they attend to, what goes
through the head, and the FLOPs that MFU counts. The trainer's own definitions, free of torch; a test compares them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trainwright.train.flops import flops_per_token, preference_flops, seq2seq_flops
from trainwright.train.models.shape import ModelShape, attention_parameters, mlp_parameters
from trainwright.train.objectives import name_for

PLAIN = ("causal_lm", "sft")  # one causal pass over the sequence
GLOBAL_CROPS = 2  # of DINO; the teacher sees these only
MEAN_SPAN = 3.0  # tokens of a span that T5 cuts out
CROP_BYTES = 240.0  # per value of a crop: resampled, blurred, coloured. 4 ms for 128 images on our H200
SMALL_HEAD = (128, 64, 1024)  # widths of DINO's head under hidden 192: inner, bottleneck, prototypes
WIDE_HEAD = (2048, 256, 65536)


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective and the options of the trainer that change its work."""

    name: str = "causal_lm"
    mask_rate: float = 0.15
    local_crops: int = 8


NEXT_TOKEN = Objective()


@dataclass(frozen=True, slots=True)
class Pass:
    """Tokens of one sample that go through a stack of layers together."""

    spans: tuple[tuple[int, int], ...]  # (tokens, length that each of them attends within)
    causal: bool
    backward: bool = True
    memory: int = 0  # tokens of the encoder that these layers attend to as well

    @property
    def tokens(self) -> int:
        return sum(tokens for tokens, _ in self.spans)


def objective_of(shape: ModelShape, name: str = "", **options: float) -> Objective:
    """The named objective, else the usual one of that kind of model."""
    known = {
        key: type(getattr(Objective(), key))(options[key]) for key in ("mask_rate", "local_crops") if key in options
    }
    return Objective(name_for(name, shape), **known)


def passes(shape: ModelShape, sequence: int, o: Objective) -> tuple[Pass, ...]:
    """The passes of one sample through the model."""
    if o.name == "mlm":
        return (Pass(((sequence, sequence),), causal=False),)
    if o.name == "span_corruption":
        inputs, targets = span_lengths(sequence, o.mask_rate)
        return Pass(((inputs, inputs),), False), Pass(((targets, targets),), True, memory=inputs)
    if o.name == "dino":
        large, small = crop_tokens(shape)
        globals_ = (GLOBAL_CROPS * large, large)
        crops = (globals_, (o.local_crops * small, small)) if o.local_crops else (globals_,)
        return Pass(crops, False), Pass((globals_,), False, backward=False)
    if o.name == "classify":
        return (Pass(((shape.context, shape.context),), False),)
    if o.name == "dpo":  # chosen and rejected, by the model and by the one that training began with
        pair = ((2 * sequence, sequence),)
        return Pass(pair, True), Pass(pair, True, backward=False)
    return (Pass(((sequence, sequence),), causal=True),)


def tokens_per_sample(shape: ModelShape, sequence: int, o: Objective) -> int:
    """As the trainer counts them: what is trained, not what only a teacher or a reference sees."""
    if o.name in PLAIN:
        return sequence
    return sum(one.tokens for one in passes(shape, sequence, o) if one.backward)


def head_tokens(shape: ModelShape, sequence: int, o: Objective) -> float:
    """Rows of one sample that go through the output head, forward and backward."""
    if o.name in PLAIN:
        return float(sequence)
    if o.name == "mlm":
        return o.mask_rate * sequence
    if o.name == "span_corruption":
        return float(span_lengths(sequence, o.mask_rate)[1])
    if o.name == "dino":
        return float(GLOBAL_CROPS + o.local_crops)
    return 1.0 if o.name == "classify" else float(tokens_per_sample(shape, sequence, o))


def head_linears(shape: ModelShape, o: Objective) -> tuple[tuple[int, int], ...]:
    """(columns, depth) of the products after the last layer, the logits' last."""
    if o.name == "dino":
        inner, neck, prototypes = SMALL_HEAD if shape.hidden < 192 else WIDE_HEAD
        return (inner, shape.hidden), (inner, inner), (neck, inner), (prototypes, neck)
    plain = (shape.vocab, shape.hidden)
    return ((shape.hidden, shape.hidden), plain) if o.name == "mlm" else (plain,)


def head_parameters(shape: ModelShape, o: Objective) -> int:
    """Parameters that an objective adds to the model: DINO's head, in place of the classifier."""
    if o.name != "dino":
        return 0
    return sum(columns * depth for columns, depth in head_linears(shape, o)) - shape.vocab * (shape.hidden + 1)


def crop_tokens(shape: ModelShape) -> tuple[int, int]:
    """Tokens of a large and of a small crop of DINO, the class token included."""
    large, small = crop_sizes(shape)
    return 1 + (large // shape.patch) ** 2, 1 + (small // shape.patch) ** 2


def crop_sizes(shape: ModelShape) -> tuple[int, int]:
    """Pixels of a side."""
    return shape.image, max(shape.patch, round(shape.image * 96 / 224 / shape.patch) * shape.patch)


def crop_bytes(shape: ModelShape, o: Objective) -> float:
    """Bytes moved on the GPU to cut one sample's crops out of its image."""
    if shape.kind != "vision":
        return 0.0
    large, small = crop_sizes(shape)
    pixels = GLOBAL_CROPS * large**2 + o.local_crops * small**2 if o.name == "dino" else large**2
    return pixels * shape.channels * CROP_BYTES


@lru_cache(maxsize=1000)
def span_lengths(inputs: int, rate: float) -> tuple[int, int]:
    """Tokens of the encoder's and of the decoder's side: the longest sample whose encoder side has at most `inputs`."""
    best = (inputs, 2)
    for tokens in range(2, 2 * inputs):
        noise = min(max(round(tokens * rate), 1), tokens - 1)
        spans = max(1, round(noise / MEAN_SPAN))
        if tokens - noise + spans + 1 > inputs:
            break
        best = tokens - noise + spans + 1, noise + spans + 1
    return best


def model_flops(shape: ModelShape, sequence: int, o: Objective, rank: int = 0) -> float:
    """FLOPs per token, forward and backward, as the trainer's MFU counts them; `rank` is that of adapters."""
    if o.name == "span_corruption":
        return seq2seq_flops(shape, *span_lengths(sequence, o.mask_rate), rank)
    if o.name == "dino":
        return dino_flops(shape, o)
    if o.name == "dpo":
        return preference_flops(shape, sequence, rank)
    return flops_per_token(shape, shape.context if o.name == "classify" else sequence, rank)


def dino_flops(shape: ModelShape, o: Objective) -> float:
    """Forward and backward of the student, forward of the teacher, their attention and their heads."""
    block = attention_parameters(shape) + mlp_parameters(shape)
    large, small = crop_tokens(shape)
    prototypes = (SMALL_HEAD if shape.hidden < 192 else WIDE_HEAD)[2]
    head = 16.7e6 if prototypes == WIDE_HEAD[2] else 256.0 * prototypes
    total = head * (6 * (GLOBAL_CROPS + o.local_crops) + 2 * GLOBAL_CROPS)
    for number, tokens, each in ((GLOBAL_CROPS, large, 8), (o.local_crops, small, 6)):
        total += number * each * tokens * shape.layers * (block + 2 * shape.hidden * tokens)
    return total / (GLOBAL_CROPS * large + o.local_crops * small)
