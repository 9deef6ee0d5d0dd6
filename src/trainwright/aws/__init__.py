"""One thin wrapper per service: the only place that knows boto3."""
