"""Objects that an API server takes, and one change of each that it refuses: test_refused_objects.py asks K8S006, and
tests/control_plane/test_refused_values.py an API server."""

from __future__ import annotations

POD = """apiVersion: v1
kind: Pod
metadata: {name: train, labels: {team: llm}}
spec:
  restartPolicy: Never
  nodeSelector: {pool: gpu}
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  containers:
  - name: train
    image: train:1.2
    imagePullPolicy: IfNotPresent
    env: [{name: A, value: "1"}]
    ports: [{name: rdzv, containerPort: 29500}]
    resources: {limits: {memory: 64Gi, cpu: 4, nvidia.com/gpu: 1}}
    volumeMounts: [{name: data, mountPath: /data}, {name: shm, mountPath: /dev/shm}]
  volumes: [{name: data, hostPath: {path: /data}}, {name: shm, emptyDir: {sizeLimit: 16Gi}}]
"""
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: gpu}
spec:
  selector: {matchLabels: {app: gpu}}
  template:
    metadata: {labels: {app: gpu}}
    spec: {containers: [{name: a, image: b}]}
"""
SERVICE = """apiVersion: v1
kind: Service
metadata: {name: train}
spec: {selector: {app: gpu}, ports: [{name: a, port: 80}, {name: b, port: 81}]}
"""
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: checkpoints}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 100Gi}}}
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}
"""
# The object, what is changed, into what, and the line of the mistake.
CHANGES = [
    (POD, "{name: train,", "{name: train_llama,", 3),
    (POD, "{name: train,", "{name: Train,", 3),
    (POD, "team: llm", "team: a b", 3),
    (POD, "team: llm", "team: x/y", 3),
    (POD, "team: llm", f"team: {'x' * 64}", 3),
    (POD, "restartPolicy: Never", "restartPolicy: never", 5),
    (POD, "pool: gpu", "pool: a b", 6),
    (POD, "operator: Exists,", "operator: Exists, value: 'true',", 7),
    (POD, "operator: Exists", "operator: exists", 7),
    (POD, "effect: NoSchedule", "effect: noSchedule", 7),
    (POD, "  - name: train", "  - name: train.llama", 9),
    (POD, "IfNotPresent", "ifNotPresent", 11),
    (POD, '"1"}', '"1", valueFrom: {fieldRef: {fieldPath: metadata.name}}}', 12),
    (POD, "name: rdzv", "name: my_port", 13),
    (POD, "name: rdzv", "name: distributed-master", 13),
    (POD, "64Gi", "64GB", 14),
    (POD, "64Gi", "64 Gi", 14),
    (POD, "64Gi", "64g", 14),
    (POD, "nvidia.com/gpu: 1}", "nvidia.com/gpu: 0.5}", 14),
    (POD, "nvidia.com/gpu: 1}", "gpu: 1}", 14),
    (POD, "mountPath: /dev/shm", "mountPath: /data", 15),
    (POD, "16Gi", "16GB", 16),
    (POD, "{path: /data}}", "{path: /data}, emptyDir: {}}", 16),
    (POD, "{name: shm, emptyDir", "{name: data, emptyDir: {}}, {name: shm, emptyDir", 16),
    (DEPLOYMENT, "{labels: {app: gpu}}", "{labels: {app: cpu}}", 5),
    (DEPLOYMENT, "  selector: {matchLabels: {app: gpu}}\n", "", 4),
    (DEPLOYMENT, "spec: {containers", "spec: {restartPolicy: Never, containers", 8),
    (SERVICE, "name: b, ", "", 4),
    (SERVICE, ", ports: [{name: a, port: 80}, {name: b, port: 81}]", "", 4),
    (CLAIM, "100Gi", "100GB", 4),
    (JOB, "name: train", "name: my_train", 3),
    (JOB, "  template", "  selector: {matchLabels: {app: a}}\n  template", 5),
    (POD, "  - name: train\n    image", "  - image", 9),
    (POD, "mountPath: /dev/shm", "readOnly: false", 15),
    (POD, '{name: A, value: "1"}', "{name: A, valueFrom: {secretKeyRef: {name: s}}}", 12),
    (POD, "containerPort: 29500", "containerPort: 29500, protocol: tcp", 13),
    (CLAIM, "ReadWriteMany", "ReadwriteMany", 4),
    (SERVICE, "spec: {selector", "spec: {clusterIP: none, selector", 4),
    (SERVICE, "port: 80}", "port: 80, protocol: udp}", 4),
]
# What looks like one of these and is taken.
TAKEN = [
    (POD, "name: train,", "name: train.v1,"),
    (POD, "cpu: 4", "cpu: 500m"),
    (POD, "cpu: 4", "cpu: 1e1"),
    (POD, "nvidia.com/gpu: 1}", "nvidia.com/gpu: '1'}"),
    (POD, "{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}", "{operator: Exists}"),
    (POD, "{key: nvidia.com/gpu, operator: Exists, effect", "{key: nvidia.com/gpu, value: 'true', effect"),
    (POD, "team: llm", "team: ''"),
    (POD, "name: A, value", "name: my-var, value"),
    (SERVICE, ", ports: [{name: a, port: 80}, {name: b, port: 81}]", ", clusterIP: None"),
    (SERVICE, "{name: a, port: 80}, {name: b, port: 81}", "{port: 80}"),
    (SERVICE, "spec: {selector", "spec: {clusterIP: '', selector"),
    (POD, '{name: A, value: "1"}', "{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}"),
]
