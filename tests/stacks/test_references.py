"""Names of things that exist only after a stack is deployed, and how they are filled in."""

from __future__ import annotations

import pytest

from trainwright.errors import UserError
from trainwright.stacks.references import fill, reference, references

TEXT = (
    "a: stack-output:network.PublicSubnet\nb: s3://stack-output:bucket.BucketName/key\nc: stack-output:network.Vpc.\n"
)


def test_the_outputs_a_text_needs_are_listed() -> None:
    assert references(TEXT) == [("network", "PublicSubnet"), ("bucket", "BucketName"), ("network", "Vpc")]


def test_outputs_are_filled_in() -> None:
    outputs = {"network": {"PublicSubnet": "subnet-1", "Vpc": "vpc-1"}, "bucket": {"BucketName": "data"}}
    assert fill(TEXT, outputs) == "a: subnet-1\nb: s3://data/key\nc: vpc-1.\n"


def test_a_missing_stack_is_a_clear_error() -> None:
    with pytest.raises(UserError, match="stack 'network' has no output 'PublicSubnet'") as caught:
        fill(TEXT, {})
    assert "stacks/network.yaml" in caught.value.fix


def test_an_output_that_no_template_has_is_our_mistake() -> None:
    assert reference("lustre-fsx", "lustre", "FileSystemId") == "stack-output:lustre-fsx.FileSystemId"
    with pytest.raises(KeyError):
        reference("network", "network", "PublicSubent")
