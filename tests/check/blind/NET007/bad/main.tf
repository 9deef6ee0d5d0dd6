terraform {
  required_version = ">= 1.6"
}

resource "aws_subnet" "workers" {
  vpc_id            = var.vpc_id
  cidr_block        = "10.12.4.0/28"
  availability_zone = "eu-central-1a"
  tags              = { Name = "train-workers" }
}

resource "aws_eks_node_group" "gpu" {
  cluster_name    = var.cluster_name
  node_group_name = "gpu"
  node_role_arn   = var.node_role_arn
  subnet_ids      = [aws_subnet.workers.id]
  ami_type        = "AL2023_x86_64_NVIDIA"
  instance_types  = ["g6.12xlarge"]
  disk_size       = 200

  scaling_config {
    min_size     = 0
    desired_size = 8
    max_size     = 32
  }
}

variable "vpc_id" { type = string }
variable "cluster_name" { type = string }
variable "node_role_arn" { type = string }
