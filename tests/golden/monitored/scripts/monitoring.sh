#!/bin/bash
# Node metrics: an exporter on every node, and on the head node a Prometheus that asks Slurm which nodes are up. It listens
# on the loopback address only: reach it through an ssh or Session Manager tunnel. Runs once a node, as root.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/parallelcluster/cfnconfig

# Another boot step may hold the package lock, and a mirror may stumble: wait and retry rather than lose the node.
apt=(apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5)
export DEBIAN_FRONTEND=noninteractive
"${apt[@]}" update
"${apt[@]}" install --no-install-recommends prometheus-node-exporter

if [ "${cfn_node_type:-}" != HeadNode ]; then
  exit 0
fi

"${apt[@]}" install --no-install-recommends prometheus
cat > /etc/prometheus/prometheus.yml <<'CONF'
global:
  scrape_interval: 15s
  external_labels:
    cluster: "monitored"
scrape_configs:
  - job_name: node
    static_configs:
      - targets: ["127.0.0.1:9100"]
        labels: {node: head}
    file_sd_configs:
      - files: [/var/lib/trainwright/nodes.json]
        refresh_interval: 30s
CONF
echo 'ARGS="--web.listen-address=127.0.0.1:9090 --storage.tsdb.retention.time=30d"' > /etc/default/prometheus

# The nodes come from Slurm, not from EC2: Prometheus runs as a user that cannot reach the head node's credentials. A node
# that is powered down or on its way up or down has a mark behind its state.
install -d -m 0755 /var/lib/trainwright
cat > /usr/local/sbin/trainwright-targets <<'SCRIPT'
#!/bin/bash
set -euo pipefail
/opt/slurm/bin/sinfo --noheader --Node --format='%N %o %R %T' \
  | awk '$4 !~ /[~#%!]$/ && $4 !~ /^down/ && !seen[$1]++ {
      printf "%s{\"targets\": [\"%s:9100\"], \"labels\": {\"node\": \"%s\", \"queue\": \"%s\"}}", comma, $2, $1, $3
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
systemctl enable prometheus
systemctl restart prometheus
