#!/bin/bash
# Node metrics: an exporter on every node, and on the head node a Prometheus that finds the nodes by the cluster's tag.
# It listens on the loopback address only: reach it through an ssh or Session Manager tunnel. Runs once a node, as root.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/parallelcluster/cfnconfig

# Another boot step may hold the package lock, and a mirror may stumble: wait and retry rather than lose the node.
apt=(apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5)
export DEBIAN_FRONTEND=noninteractive
"${apt[@]}" update
"${apt[@]}" install --no-install-recommends prometheus-node-exporter

if [ "${cfn_node_type:-}" = HeadNode ]; then
  "${apt[@]}" install --no-install-recommends prometheus
  cat > /etc/prometheus/prometheus.yml <<'CONF'
global:
  scrape_interval: 15s
scrape_configs:
  - job_name: node
    ec2_sd_configs:
      - region: us-east-2
        port: 9100
        filters:
          - name: tag:parallelcluster:cluster-name
            values: ["monitored"]
          - name: instance-state-name
            values: ["running"]
    relabel_configs:
      - source_labels: [__meta_ec2_tag_parallelcluster_queue_name]
        target_label: queue
      - source_labels: [__meta_ec2_instance_type]
        target_label: instance_type
      - source_labels: [__meta_ec2_tag_Name]
        target_label: node
CONF
  echo 'ARGS="--web.listen-address=127.0.0.1:9090 --storage.tsdb.retention.time=30d"' > /etc/default/prometheus
  systemctl enable prometheus
  systemctl restart prometheus
fi
