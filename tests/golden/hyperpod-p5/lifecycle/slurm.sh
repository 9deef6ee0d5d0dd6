#!/bin/bash
# Starts Slurm's daemons with the settings of the spec: the controller on the head node, with its accounting database where
# there is one; slurmd elsewhere, which fetches its configuration from the controller. Runs as root on every node.
set -euo pipefail
shopt -s inherit_errexit

# shellcheck source=/dev/null
. /etc/trainwright/node

etc=/opt/slurm/etc
changed=no

# put FILE MODE OWNER: write the file from what is read, if it is another.
put() {
  local new
  new=$(mktemp)
  cat > "$new"
  if ! cmp -s "$new" "$1"; then
    install -D -m "$2" -o "$3" -g "$3" "$new" "$1"
    changed=yes
  fi
  rm -f "$new"
}

# daemon NAME: running, at every boot too, with the files that are there now.
daemon() {
  systemctl daemon-reload
  systemctl enable "$1"
  if [ "$changed" = yes ]; then systemctl restart "$1"; else systemctl start "$1"; fi
}

if [ "${cfn_node_type:?}" != HeadNode ]; then
  put /etc/trainwright/slurmd 0644 root <<< "SLURMD_OPTIONS=--conf-server ${controllers:?}"
  # After a reboot too: a node without its data must not take jobs.
  put /etc/systemd/system/slurmd.service.d/trainwright.conf 0644 root <<'UNIT'
[Unit]
RequiresMountsFor=/fsx /home

[Service]
EnvironmentFile=/etc/trainwright/slurmd
UNIT
  systemctl disable --now slurmctld 2> /dev/null || true
  daemon slurmd
  exit 0
fi

# HyperPod's agent writes slurm.conf once it knows the nodes.
waited=0
until grep -q '^SlurmctldHost=' "$etc/slurm.conf" 2> /dev/null; do
  [ "$waited" -lt 600 ] || { echo "error: HyperPod has written no $etc/slurm.conf" >&2; exit 1; }
  sleep 5
  waited=$((waited + 5))
done

# slurm.conf includes accounting.conf, which is empty on a new node. What stands there last is what counts.
put "$etc/accounting.conf" 0644 root < <(
  echo AccountingStorageType=accounting_storage/slurmdbd
  echo AccountingStorageHost="${node_address:?}"
  echo JobAcctGatherType=jobacct_gather/linux
)
grep -Eqi '^include[[:space:]]+([^[:space:]]*/)?accounting\.conf' "$etc/slurm.conf" || echo 'include accounting.conf' >> "$etc/slurm.conf"

# The password is read here and nowhere else: only Slurm's user may read the file.
password=$(aws secretsmanager get-secret-value --region "${cfn_region:?}" --secret-id stack-output:accounting.PasswordSecretArn \
  --query SecretString --output text)
case $password in *[[:space:]\"\'\#\\=]*)
  echo "error: the password holds a blank, quote, #, = or backslash, which Slurm's files cannot hold" >&2
  exit 1
  ;;
esac
address=stack-output:accounting.Uri
trust=
case ${address%:*} in
  *.rds.amazonaws.com | *.rds.amazonaws.com.cn)
    authority=/etc/trainwright/rds-ca.pem
    if [ ! -s "$authority" ]; then
      curl -fsSL --retry 5 -o "$authority.new" https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem
      mv "$authority.new" "$authority"
    fi
    trust="StorageParameters=SSL_CA=$authority"
    ;;
esac
host=$(sed -n 's/^SlurmctldHost=\([^( ]*\).*/\1/p' "$etc/slurm.conf" | head -n 1)
user=stack-output:accounting.UserName
put "$etc/slurmdbd.conf" 0600 slurm << CONF
AuthType=auth/munge
DbdHost=$host
SlurmUser=slurm
LogFile=/var/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=${address%:*}
StoragePort=${address##*:}
StorageUser=$user
StoragePass=$password
StorageLoc=slurm_acct_hyperpod_p5
$trust
CONF
daemon slurmdbd
# A controller that is new and finds no database ends at once.
waited=0
until PATH=/opt/slurm/bin:$PATH sacctmgr --noheader show cluster > /dev/null 2>&1; do
  [ "$waited" -lt 300 ] || { echo "error: slurmdbd does not answer; /var/log/slurmdbd.log has the reason" >&2; exit 1; }
  sleep 2
  waited=$((waited + 2))
done
systemctl disable --now slurmd 2> /dev/null || true
daemon slurmctld
