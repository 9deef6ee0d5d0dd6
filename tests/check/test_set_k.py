"""False alarms that the judged files of set K showed: options of another program, addresses that a user replaces."""

from __future__ import annotations

from pathlib import Path

from reported import shown

GROUP = """AWSTemplateFormatVersion: '2010-09-09'
{parameters}Resources:
  {name}:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: a
      SecurityGroupIngress:
      - {{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: {address}}}
"""


def test_options_of_another_program_are_not_compared(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    script = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--limit')\np.parse_args()\n"
    (tmp_path / "run.py").write_text(script)
    assert shown(run("a.sh", "#!/bin/bash\npython run.py --limit 9 -- cargo test --workspace\n", "JOB013")) == []
    assert shown(run("b.sh", "#!/bin/bash\n# train\npython run.py --workspace\n", "JOB013")) == ["error JOB013 3"]


def test_an_open_port_is_a_warning_where_it_is_written_for_a_cluster(run) -> None:  # type: ignore[no-untyped-def]
    written = GROUP.format(parameters="", name="HeadNodeGroup", address="0.0.0.0/0")
    assert shown(run("a.yaml", written, "SEC004")) == ["warning SEC004 8"]
    other = GROUP.format(parameters="", name="Web", address="0.0.0.0/0")
    assert shown(run("b.yaml", other, "SEC004")) == ["info SEC004 8"]
    parameters = "Parameters:\n  From:\n    Type: String\n    Default: 0.0.0.0/0\n"
    chosen = GROUP.format(parameters=parameters, name="HeadNodeGroup", address="!Ref From")
    assert shown(run("c.yaml", chosen, "SEC004")) == ["info SEC004 5"]


def test_a_variable_that_some_line_sets_is_set(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\nNODE_NAME=a\n{}\ntorchrun train.py ${{NODE_NAMES[0]}}\n"
    assert shown(run("a.sh", text.format('eval "NODE_NAMES=( $(cat names) )"'), "SHL001")) == []
    assert shown(run("b.sh", text.format("date"), "SHL001")) == ["warning SHL001 4"]


def test_brackets_in_the_quotes_of_a_command_are_text(run) -> None:  # type: ignore[no-untyped-def]
    text = '#!/bin/bash\nNODE_NAME=a\nNODE_NAMES=$(jq ".a | \\"[\\(.b)]\\"" f)\ntorchrun train.py $NODE_NAMES\n'
    assert shown(run("a.sh", text, "SHL001")) == []
    text = '#!/bin/bash\nHEAD=$(echo "a(b" | cut -d"(" -f1)\ntorchrun train.py --rdzv_backends=c10d $HEAD\n'
    assert shown(run("b.sh", text, "JOB013")) == []
    here = "#!/bin/bash\nA=$(cat <<END\nit's \"one\nEND\n)\ntorchrun --nnodes=2 --nproc_per_nodes=8 train.py\n"
    assert [finding.span.line for finding in run("c.sh", here, "JOB013")] == [6]
