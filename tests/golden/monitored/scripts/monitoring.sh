#!/bin/bash
# Metrics: an exporter on every node; on the head node a Prometheus that asks Slurm which nodes are up, with rules and alerts,
# an Alertmanager and a Grafana with dashboards. On the head node all listen on the loopback address only: reach them through
# an ssh or Session Manager tunnel. Runs once a node, as root.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/parallelcluster/cfnconfig
if [ "${cfn_node_type:-}" = HeadNode ]; then head=yes; else head=no; fi

# unpack FOLDER: the tar file, compressed and in base64, that is read.
unpack() {
  base64 -d | /usr/bin/python3 -c 'import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|bz2").extractall(sys.argv[1])' "$1"
}

# The exporter and the node checks (tar, compressed): plain Python, for the system's own interpreter.
install -d -m 0755 /opt/trainwright/node
unpack /opt/trainwright/node <<'CODE'

CODE
install -m 0644 /opt/trainwright/node/trainwright/exporters/data/trainwright-exporter.service /etc/systemd/system/
cat > /usr/local/bin/trainwright-health <<'HEALTH'
#!/bin/sh
PYTHONPATH=/opt/trainwright/node exec /usr/bin/python3 -m trainwright.health "$@"
HEALTH
chmod 0755 /usr/local/bin/trainwright-health

if [ "$head" = no ]; then
  systemctl daemon-reload
  systemctl enable --now trainwright-exporter
  exit 0
fi

printf 'EXPORTER_OPTIONS="--address 127.0.0.1 --slurm --runs %s"\n' /fsx/trainwright/runs > /etc/default/trainwright-exporter
systemctl daemon-reload
systemctl enable --now trainwright-exporter

# Configuration first: the services start with it.
unpack / <<'FILES'

FILES
chmod 0755 /etc/prometheus /etc/prometheus/trainwright /var/lib/trainwright /var/lib/trainwright/dashboards
chmod 0755 /etc/grafana /etc/grafana/provisioning /etc/grafana/provisioning/*

# Another boot step may hold the package lock, and a mirror may stumble: wait and retry rather than lose the node. Packages
# keep the configuration that is there.
apt=(apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 -o Dpkg::Options::=--force-confold)
export DEBIAN_FRONTEND=noninteractive
"${apt[@]}" update
"${apt[@]}" install --no-install-recommends prometheus prometheus-alertmanager
echo 'ARGS="--web.listen-address=127.0.0.1:9090 --storage.tsdb.retention.time=30d"' > /etc/default/prometheus
echo 'ARGS="--web.listen-address=127.0.0.1:9093 --cluster.listen-address="' > /etc/default/prometheus-alertmanager

# The nodes come from Slurm, not from EC2: Prometheus runs as a user that cannot reach the head node's credentials. A node
# that is powered down or on its way up or down has a mark behind its state.
cat > /usr/local/sbin/trainwright-targets <<'SCRIPT'
#!/bin/bash
set -euo pipefail
/opt/slurm/bin/sinfo --noheader --Node --format='%N %o %R %T' \
  | awk '$4 !~ /[~#%!]$/ && $4 !~ /^down/ && !seen[$1]++ {
      printf "%s{\"targets\": [\"%s:9942\"], \"labels\": {\"node\": \"%s\", \"queue\": \"%s\"}}", comma, $2, $1, $3
      comma = ",\n "
    }
    BEGIN { printf "[" } END { print "]" }' > /var/lib/trainwright/nodes.json.new
mv /var/lib/trainwright/nodes.json.new /var/lib/trainwright/nodes.json
SCRIPT
chmod 0755 /usr/local/sbin/trainwright-targets

cat > /etc/systemd/system/trainwright-targets.service <<'UNIT'
[Unit]
Description=Tell Prometheus which nodes are up

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/trainwright-targets
UNIT
cat > /etc/systemd/system/trainwright-targets.timer <<'UNIT'
[Unit]
Description=Tell Prometheus which nodes are up, twice a minute

[Timer]
OnBootSec=30s
OnUnitActiveSec=30s

[Install]
WantedBy=timers.target
UNIT
systemctl daemon-reload
systemctl enable --now trainwright-targets.timer
systemctl enable prometheus prometheus-alertmanager
systemctl restart prometheus prometheus-alertmanager

# Grafana is not in the system's own package list. A cluster without dashboards is better than none: failing here ends
# nothing. Everybody on the head node may look; to change something, root reads the password.
install_grafana() {
  install -d -m 0755 /etc/apt/keyrings
  curl -fsSL --retry 5 https://apt.grafana.com/gpg.key -o /etc/apt/keyrings/grafana.asc || return 1
  echo "deb [signed-by=/etc/apt/keyrings/grafana.asc] https://apt.grafana.com stable main" \
    > /etc/apt/sources.list.d/grafana.list
  "${apt[@]}" update && "${apt[@]}" install grafana=12.1.1 || return 1
  apt-mark hold grafana
  install -d -m 0755 /etc/trainwright # others read their files there
  [ -s /etc/trainwright/grafana-password ] ||
    (umask 077 && head -c 18 /dev/urandom | base64 > /etc/trainwright/grafana-password)
  install -d /etc/systemd/system/grafana-server.service.d
  cat > /etc/systemd/system/grafana-server.service.d/trainwright.conf <<'UNIT'
[Service]
Environment=GF_SERVER_HTTP_ADDR=127.0.0.1 GF_AUTH_ANONYMOUS_ENABLED=true GF_AUTH_ANONYMOUS_ORG_ROLE=Viewer
Environment=GF_ANALYTICS_REPORTING_ENABLED=false GF_SECURITY_ADMIN_PASSWORD__FILE=%d/password
LoadCredential=password:/etc/trainwright/grafana-password
UNIT
  systemctl daemon-reload
  systemctl enable --now grafana-server
}
install_grafana || echo "Grafana was not installed; Prometheus and its alerts work without it" >&2
