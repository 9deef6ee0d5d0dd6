"""One thin wrapper a service: the only place that knows boto3."""
