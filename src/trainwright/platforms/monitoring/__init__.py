"""Prometheus, Alertmanager and Grafana of a cluster: their configuration, rules and dashboards, for every platform."""
