"""Trainer and predictor share one table of models: for every family, the predictor counts the parameters that the
trainer builds, and predicts the step."""

import pytest
import torch

from trainwright.catalog.models import model as catalog_model
from trainwright.catalog.models import parameter_count
from trainwright.predict import PredictRequest, predict
from trainwright.train.models.decoder import Decoder
from trainwright.train.models.shape import shapes

SMALLEST = {shape.family: shape.name for shape in reversed(shapes().values())}


@pytest.mark.parametrize("model", [name for name, shape in shapes().items() if shape.kind == "decoder"])
def test_the_catalog_counts_the_parameters_that_the_trainer_builds(model):
    with torch.device("meta"):
        built = sum(param.numel() for param in Decoder(catalog_model(model)).parameters())
    assert built == parameter_count(catalog_model(model))


@pytest.mark.shows("predict")
@pytest.mark.parametrize("model", SMALLEST.values())
def test_every_family_is_predicted(model):
    nodes = max(1, round(parameter_count(catalog_model(model)) / 20e9))
    ep = "ep=8" if catalog_model(model).experts else ""
    sequence = min(1024, catalog_model(model).longest_sequence)
    prediction = predict(PredictRequest(model, "p5.48xlarge", nodes, ep, sequence=sequence, batch_tokens=2**22))
    assert 0.003 < prediction.mfu < 0.75
