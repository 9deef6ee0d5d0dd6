"""Errors of AWS calls are reported in three parts."""

import sys

import boto3
import pytest

from trainwright.aws.ec2 import describe_instance_types
from trainwright.aws.session import client
from trainwright.errors import UserError


def test_without_boto3_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UserError) as error:
        client("ec2", "us-east-1")
    assert error.value.fix == "pip install trainwright[aws]"


def test_without_credentials(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(UserError) as error:
        describe_instance_types(boto3.Session().client("ec2", region_name="us-east-1"))
    assert "credentials" in error.value.what
    assert "aws configure" in error.value.fix


def test_unknown_profile():
    with pytest.raises(UserError) as error:
        client("ec2", "us-east-1", profile="nobody-has-this-profile")
    assert "list-profiles" in error.value.fix


def test_no_region(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(UserError) as error:
        client("ec2")
    assert "--region" in error.value.fix
