provider "aws" {
  region = var.region
}

resource "aws_eks_node_group" "gpu" {
  cluster_name    = "ml-platform"
  node_group_name = "gpu"
  node_role_arn   = data.aws_iam_role.node.arn
  subnet_ids      = data.aws_subnets.private.ids
  instance_types  = [var.gpu_instance_type]
  ami_type        = "AL2023_x86_64_NVIDIA"
  disk_size       = 200

  scaling_config {
    min_size     = 0
    desired_size = 0
    max_size     = var.gpu_max_nodes
  }
}

data "aws_iam_role" "node" {
  name = "ml-platform-node"
}

data "aws_subnets" "private" {
  tags = { Tier = "private" }
}
