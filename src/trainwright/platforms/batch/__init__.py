"""AWS Batch."""
