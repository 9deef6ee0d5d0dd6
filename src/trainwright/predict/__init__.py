"""Predict: step time, memory, cost, time to train and goodput of a training job, before anyone pays for it."""

from trainwright.predict.prediction import Prediction, predict
from trainwright.predict.request import PredictRequest

__all__ = ["PredictRequest", "Prediction", "predict"]
