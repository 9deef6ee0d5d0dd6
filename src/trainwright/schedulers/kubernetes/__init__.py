"""Jobs on Kubernetes: a pod that every kind of job shares, the kinds around it, and the cluster's own API."""
