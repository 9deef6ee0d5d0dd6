"""Reads tables of published measurements and predicts each row: how the predictor is tested, and `predict --rows`."""
