"""The answers behind `check --aws`, against moto. moto knows no capacity reservations and gives a file system no cards,
so those two answers come from the Stubber of botocore, which holds them to the real service model."""

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from trainwright.aws.facts import AwsFacts
from trainwright.check import facts as questions
from trainwright.errors import UserError


@pytest.fixture
def aws(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws():
        yield AwsFacts("us-east-2")


@pytest.fixture
def ec2(aws):
    return boto3.client("ec2", region_name="us-east-2")


def test_it_answers_every_question_of_the_protocol(aws):
    answers: questions.AwsFacts = aws
    for name in vars(questions.AwsFacts):
        if not name.startswith("_"):
            assert hasattr(answers, name), name
    assert aws.region == "us-east-2"


def test_subnet(aws, ec2):
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone="us-east-2b")["Subnet"]
    subnet = aws.subnet(made["SubnetId"])
    assert (subnet.zone, subnet.zone_id, subnet.free_addresses, subnet.public_addresses) == (
        "us-east-2b",
        "use2-az2",
        251,
        False,
    )
    ec2.modify_subnet_attribute(SubnetId=made["SubnetId"], MapPublicIpOnLaunch={"Value": True})
    assert aws.subnet(made["SubnetId"]) == subnet  # asked once
    assert AwsFacts("us-east-2").subnet(made["SubnetId"]).public_addresses


def test_security_group(aws, ec2):
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    group = ec2.create_security_group(GroupName="efa", Description="efa", VpcId=vpc)["GroupId"]
    own = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=own)
    lustre = [{"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, "IpRanges": [{"CidrIp": "10.0.0.0/16"}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=lustre)
    facts = aws.security_group(group)
    assert questions.GroupRule("tcp", 988, 988, (), ("10.0.0.0/16",)) in facts.ingress
    assert any(rule.protocol == "-1" and rule.groups == (group,) for rule in facts.ingress)
    assert any(rule.ranges == ("0.0.0.0/0",) for rule in facts.egress)


def test_key_pair_and_image(aws, ec2):
    ec2.create_key_pair(KeyName="new", KeyType="ed25519")
    assert aws.key_pair("new").kind == "ed25519"
    source = ec2.describe_images()["Images"][0]["ImageId"]
    ec2.create_tags(Resources=[source], Tags=[{"Key": "parallelcluster:version", "Value": "3.16.1"}])
    image = aws.image(source)
    assert (image.parallelcluster, image.arch in ("x86_64", "arm64")) == ("3.16.1", True)


def test_what_does_not_exist_is_none(aws):
    assert aws.subnet("subnet-0123456789abcdef0") is None
    assert aws.security_group("sg-0123456789abcdef0") is None
    assert aws.image("ami-0123456789abcdef0") is None
    assert aws.key_pair("nobody") is None
    assert aws.file_system("fs-0123456789abcdef0") is None


def test_reservation(aws):
    row = {
        "CapacityReservationId": "cr-0a1b2c3d4e5f67890",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-2b",
        "AvailabilityZoneId": "use2-az2",
        "TotalInstanceCount": 4,
        "ReservationType": "capacity-block",
        "State": "active",
        "PlacementGroupArn": "arn:aws:ec2:us-east-2:123456789012:placement-group/train",
    }
    with Stubber(aws._ec2) as stub:
        asked = {"CapacityReservationIds": ["cr-0a1b2c3d4e5f67890"]}
        stub.add_response("describe_capacity_reservations", {"CapacityReservations": [row]}, asked)
        stub.add_client_error("describe_capacity_reservations", "InvalidCapacityReservationId.NotFound", "gone", 400)
        reservation = aws.reservation("cr-0a1b2c3d4e5f67890")
        assert aws.reservation("cr-0000000000000000a") is None
    assert reservation == questions.Reservation(
        "cr-0a1b2c3d4e5f67890", "p5.48xlarge", "us-east-2b", 4, True, "active", "train", "use2-az2"
    )


def test_file_system_groups(aws, ec2):
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName="fsx", Description="fsx", VpcId=vpc)["GroupId"]
    card = ec2.create_network_interface(SubnetId=subnet, Groups=[group])["NetworkInterface"]["NetworkInterfaceId"]
    row = {"FileSystemId": "fs-0123456789abcdef0", "FileSystemType": "LUSTRE", "NetworkInterfaceIds": [card]}
    with Stubber(aws._fsx) as stub:
        stub.add_response("describe_file_systems", {"FileSystems": [row]}, {"FileSystemIds": ["fs-0123456789abcdef0"]})
        assert aws.file_system("fs-0123456789abcdef0") == questions.FileSystem(
            "fs-0123456789abcdef0", "lustre", (group,)
        )


def test_a_refusal_is_an_error_not_an_absence(aws):
    with Stubber(aws._ec2) as stub:
        stub.add_client_error("describe_subnets", "UnauthorizedOperation", "no", 403)
        with pytest.raises(UserError) as error:
            aws.subnet("subnet-0123456789abcdef0")
    assert "DescribeSubnets" in error.value.fix
