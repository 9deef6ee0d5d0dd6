"""What a spec becomes on this machine, and the files a local cluster is made of: no daemon is started here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from resolving import loaded
from trainwright.check.gate import CheckFailed, require_clean
from trainwright.errors import UserError
from trainwright.platforms.base import find, platform_named
from trainwright.platforms.local import config, state
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue, hostlist
from trainwright.platforms.local.platform import cluster_from_spec
from trainwright.spec.model import CountRange, Queue, Spec

HERE = Path(config.__file__).parent


def spec(*queues: Queue, **fields: object) -> Spec:
    return Spec(name="demo", platform="local", queues=queues or (Queue(name="train", nodes=2),), **fields)


def test_a_spec_becomes_queues() -> None:
    grown = spec(
        Queue(name="train", nodes=4, cpus=2, gpus=8),
        Queue(name="burst", count=CountRange(min=1, max=8)),
        accounting=True,
    )
    cluster = cluster_from_spec(grown)
    assert cluster.queues == (LocalQueue("train", 4, 2, 8), LocalQueue("burst", 8, 1, 0, least=1))
    assert [node.name for node in cluster.nodes if node.elastic] == [f"burst-{n}" for n in range(2, 9)]
    assert cluster.database
    assert len({node.address for node in cluster.nodes}) == 12


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"zone": "use2-az3"}, "cannot honour `zone`"),
        ({"storage": [{"mount": "/fsx", "lustre": {}}]}, "cannot honour `lustre`"),
        ({"queues": [{"name": "train", "instance": "p5.48xlarge"}]}, "cannot honour `instance`"),
    ],
)
def test_what_one_machine_cannot_give_is_refused(fields: dict[str, object], words: str) -> None:
    spec = loaded({"name": "d", "platform": "local", "queues": [{"name": "q"}], **fields})
    with pytest.raises(CheckFailed, match=words):
        require_clean(spec)
    with pytest.raises(AssertionError, match="SPC001"):
        cluster_from_spec(spec.spec)


def test_many_addresses_stay_in_the_loopback_range() -> None:
    addresses = [node.address for node in LocalCluster("big", (LocalQueue("n", 600),)).nodes]
    assert len(set(addresses)) == 600
    assert all(address.startswith("127.77.") for address in addresses)
    assert config.HEAD_ADDRESS not in addresses


def test_names_are_folded_as_slurm_does() -> None:
    nodes = LocalCluster("x", (LocalQueue("a-b", 3), LocalQueue("c", 1))).nodes
    assert hostlist(nodes) == "a-b-[1-3],c-1"


def test_settings_of_the_spec_win(own_home: Path) -> None:
    cluster = LocalCluster("x", (LocalQueue("a", 2, gpus=1),), settings=(("KILLWAIT", "30"), ("PriorityType", "x/y")))
    text = config.slurm_conf(state.new_record(cluster, True, ()))
    assert "KILLWAIT=30" in text
    assert "KillWait=2" not in text
    assert "PriorityType=x/y" in text
    assert "Gres=gpu:1" in text


def test_a_long_home_gets_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / ("long" * 20)))
    record = state.new_record(LocalCluster("x", (LocalQueue("a"),)), True, ())
    assert len(str(record.short)) <= state.LONGEST_FOLDER
    assert record.short.resolve() == record.folder
    assert state.read("x") == record
    state.remove(record)
    assert not record.short.is_symlink()


def test_the_scripts_pass_shellcheck() -> None:
    scripts = sorted(HERE.glob("*.sh"))
    assert {path.stem for path in scripts} == {"head", "node", "machine", "epilog", "resume", "suspend"}
    done = subprocess.run(["shellcheck", "-x", "-P", "SCRIPTDIR", *map(str, scripts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_find_says_what_a_word_means(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: demo\nplatform: local\nqueues: [{name: train, nodes: 2}]\n")
    assert find(str(path))[1:] == ("demo", find(str(path))[2])
    assert find("demo")[1:] == ("demo", None)
    with pytest.raises(UserError, match="no file"):
        find(str(tmp_path / "missing.yaml"))
    with pytest.raises(UserError, match="`down` does not reach platform eks yet"):
        platform_named("eks").down("demo", None, print)
    with pytest.raises(UserError, match="no platform 'ekz'") as caught:
        platform_named("ekz")
    assert "'eks'" in caught.value.fix
