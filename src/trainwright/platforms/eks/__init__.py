"""Kubernetes on EKS, also where SageMaker HyperPod provides the nodes."""
