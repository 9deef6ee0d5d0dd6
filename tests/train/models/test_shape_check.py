"""A model's file is refused by the key, its value, the file and a fix: by the trainer and by predictions alike."""

import json
import re

import pytest

from trainwright.catalog.models import known_shapes, model
from trainwright.errors import UserError
from trainwright.train.models.hf_config import config_of
from trainwright.train.models.shape import debug_sibling, lookup
from trainwright.train.models.shape_check import require_own

MINE = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 160, "vocab": 512, "context": 256}
IMAGES = {**MINE, "kind": "vision", "family": "vit", "kv_heads": 4, "position": "learned", "context": 197}
EXPERTS = {**MINE, "experts": 4, "experts_per_token": 2}
WRONG = [
    (MINE, {"heads": 3, "kv_heads": 3}, "hidden is 64, which heads 3 does not divide"),
    (MINE, {"heads": 3}, "hidden is 64, which heads 3 does not divide"),
    (MINE, {"kv_heads": 3}, "heads is 4, which kv_heads 3 does not divide"),
    (MINE, {"hidden": -64}, "hidden is -64"),
    (MINE, {"hidden": 64.5}, "hidden is 64.5"),
    (MINE, {"hidden": 60}, "head_dim is 15"),
    (MINE, {"layers": "two"}, "layers is 'two'"),
    (MINE, {"layers": True}, "layers is True"),
    (MINE, {"layers": 0}, "layers is 0"),
    (MINE, {"layers": None}, "layers is None"),
    (MINE, {"vocab": 10**12}, "vocab is 1000000000000"),
    (MINE, {"tied": "yes"}, "tied is 'yes'"),
    (MINE, {"norm_eps": float("nan")}, "norm_eps is nan"),
    (MINE, {"rope_theta": 0}, "rope_theta is 0"),
    (MINE, {"rope_scaling": [2.0, 3.0]}, "rope_scaling is"),
    (MINE, {"activation": "swish"}, "activation is 'swish'"),
    (MINE, {"kind": "mamba"}, "kind is 'mamba'"),
    (MINE, {"mtp_layers": "two"}, "mtp_layers is 'two'"),
    (MINE, {"window_layers": 3}, "window_layers is 3"),
    (MINE, {"rope_dim": 32}, "rope_dim is 32"),
    (MINE, {"experts_per_token": 2}, "experts_per_token is 2"),
    (EXPERTS, {"experts_per_token": 8}, "experts_per_token is 8"),
    (EXPERTS, {"experts_per_token": 0}, "experts_per_token is 0"),
    (EXPERTS, {"router_groups": 3, "router_top_groups": 1}, "experts is 4, which router_groups 3"),
    (EXPERTS, {"dense_layers": 1}, "dense_ffn is 0"),
    (IMAGES, {"image": 225}, "image is 225, which patch 16"),
    (IMAGES, {"context": 10}, "context is 10"),
]


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(content))
        return str(path)

    return write


@pytest.mark.parametrize(("good", "change", "message"), WRONG)
def test_a_wrong_value_is_named_with_the_file_and_a_fix(good, change, message, file):
    path = file({**good, **change})
    errors = []
    for read in (lookup, model):
        with pytest.raises(UserError) as caught:
            read(path)
        errors.append((caught.value.what, caught.value.where, caught.value.fix))
    assert errors[0] == errors[1], "train and predict say the same"
    what, where, fix = errors[0]
    assert message in what
    assert where == path
    key, number = re.match(r'"(\w+)": ([^,]+)', fix).groups()
    fixed = {**good, **change, key: MINE.get(key, 4) if number == "N" else json.loads(number)}
    lookup(file(fixed))


@pytest.mark.parametrize("read", [lookup, model])
def test_missing_and_unknown_fields_are_named(read, file):
    for name in ("layers", "hidden", "heads", "ffn"):
        with pytest.raises(UserError, match=f"has no '{name}'") as caught:
            read(file({k: v for k, v in MINE.items() if k != name}))
        assert f'"{name}": N' in caught.value.fix
    with pytest.raises(UserError, match=r"'frob' \(it is 1\)") as caught:
        read(file({**MINE, "frob": 1}))
    assert caught.value.fix == "remove 'frob'"
    with pytest.raises(UserError, match="'layer'") as caught:
        read(file({**MINE, "layer": 1}))
    assert "layers" in caught.value.fix


def test_every_known_model_passes():
    from dataclasses import asdict

    for shape in known_shapes().values():
        for each in (shape, debug_sibling(shape)):
            require_own(asdict(each), each.name)


@pytest.mark.parametrize("read", [lookup, model])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": "two"}, "hidden_size is 'two'"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_attention_heads": 3, "num_key_value_heads": 2}, "num_attention_heads is 3, which num_key_value_heads 2"),
        ({"intermediate_size": -1}, "intermediate_size is -1"),
    ],
)
def test_a_hugging_face_config_is_refused_by_its_own_keys(change, message, read, file):
    config = config_of(lookup("llama3-8b-debug"), "float32")
    with pytest.raises(UserError) as caught:
        read(file({**config, **change}))
    assert message in caught.value.what
    assert caught.value.where.endswith("mine.json")
