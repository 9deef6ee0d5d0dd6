"""Predict: step time, memory, cost, time to train and goodput of a training job, before anyone pays for it."""

from trainwright.predict.plan import Plan
from trainwright.predict.prediction import Prediction, predict

__all__ = ["Plan", "Prediction", "predict"]
