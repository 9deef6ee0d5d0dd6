"""The capability table: blocks that several platforms share hold for each of them."""

from __future__ import annotations

import pytest

from trainwright.catalog.capabilities import platforms
from trainwright.catalog.tables import shipped_toml

TABLE = shipped_toml("capabilities.toml")


@pytest.mark.parametrize("name", TABLE["platforms"])
def test_a_platform_has_the_rows_of_the_blocks_it_inherits(name: str) -> None:
    row = TABLE["platforms"][name]
    shared = {key for block in row.get("inherits", ()) for key in TABLE["shared"][block]["cannot"]}
    assert {tuple(key.split(".")) for key in shared | row.get("cannot", {}).keys()} == platforms()[name].cannot.keys()


def test_every_platform_on_aws_refuses_the_sizes_of_local_nodes() -> None:
    on_aws = [platform for platform in platforms().values() if platform.on_aws]
    assert on_aws
    for platform in on_aws:
        assert platform.cannot["queues", "*", "nodes"].fix == "use `instance` and `count`"


def test_every_shared_block_serves_several_platforms() -> None:
    users = [block for row in TABLE["platforms"].values() for block in row.get("inherits", ())]
    assert {block for block in TABLE["shared"] if users.count(block) < 2} == set()
