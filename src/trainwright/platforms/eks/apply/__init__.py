"""EKS on AWS: the cluster through eksctl where it is installed and through stacks of our own otherwise, then what runs
on it through kubectl and helm; and all of it away again."""
