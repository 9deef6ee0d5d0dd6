# expect: 6:20
resource "aws_eks_node_group" "gpu" {
  cluster_name   = "train"
  node_role_arn  = aws_iam_role.node.arn
  subnet_ids     = [aws_subnet.a.id]
  ami_type       = "AL2_x86_64_GPU"
  instance_types = ["g5.48xlarge"]
  scaling_config {
    min_size     = 0
    max_size     = 4
    desired_size = 0
  }
}
