# expect: 17:24
# expect: 18:25
# expect: 19:24
module "eks" {
  source          = "terraform-aws-modules/eks/aws"
  version         = "20.31.6"
  cluster_name    = "train"
  cluster_version = var.kubernetes_version

  eks_managed_node_groups = {
    system = {
      instance_types = ["m5.xlarge"]
      min_size       = 2
      max_size       = 2
    }
    p5 = {
      ami_type       = "AL2023_x86_64_STANDARD"
      instance_types = ["p5.48xlarge"]
      capacity_type  = "CAPACITY_BLOCK"
      min_size       = 4
      max_size       = 4
    }
  }
}
