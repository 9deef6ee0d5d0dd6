"""The configuration of Alertmanager: one message per kind of alert, to the places that the spec names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.spec.model import Alerts

SUBJECT = "[{{ .Status | toUpper }}] {{ .CommonLabels.alertname }} on {{ .CommonLabels.cluster }}"


def alertmanager_config(alerts: Alerts, group_wait: str = "30s") -> dict[str, Any]:
    """The whole file. Without a place to send to, alerts show up in Alertmanager and on the dashboards only."""
    return {
        "route": {
            "receiver": "on-call",
            "group_by": ["cluster", "alertname"],
            "group_wait": group_wait,
            "group_interval": "5m",
            "repeat_interval": "4h",
        },
        "receivers": [{"name": "on-call", **_receivers(alerts)}],
        "inhibit_rules": _inhibitions(),
    }


def _receivers(alerts: Alerts) -> dict[str, Any]:
    places: dict[str, Any] = {}
    if alerts.webhook:
        places["webhook_configs"] = [{"url": alerts.webhook, "send_resolved": True}]
    if alerts.mail:
        mail = alerts.mail
        # A relay inside the network seldom has a certificate that a node trusts; TLS is used where it offers it.
        server = {"smarthost": mail.server, "require_tls": False}
        message = {"to": mail.to, "from": mail.sender, "headers": {"Subject": SUBJECT}, "send_resolved": True}
        places["email_configs"] = [{**message, **server}]
    if alerts.sns:
        region = alerts.sns.split(":")[3]
        places["sns_configs"] = [
            {"topic_arn": alerts.sns, "sigv4": {"region": region}, "subject": SUBJECT, "send_resolved": True}
        ]
    return places


def _inhibitions() -> list[dict[str, Any]]:
    """What follows from a larger fault is not sent on its own."""

    def when(cause: str, effects: str, equal: list[str]) -> dict[str, Any]:
        sources, targets = [f'alertname="{cause}"'], [f'alertname=~"{effects}"']
        return {"source_matchers": sources, "target_matchers": targets, "equal": equal}

    return [
        when("SlurmControllerDown", "NodeDrained|QueueStuck", ["cluster"]),
        when("FilesystemFull", "FilesystemFillsSoon", ["cluster", "node", "mount"]),
        when("EfaDeviceLost", "EfaDrops|EfaPeerUnresponsive", ["cluster", "node"]),
        when("JobStuck", "CheckpointOld|RunBehindPrediction", ["cluster", "run"]),
    ]
