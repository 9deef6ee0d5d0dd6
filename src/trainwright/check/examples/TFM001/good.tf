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
      ami_type       = "AL2023_x86_64_NVIDIA"
      instance_types = ["p5.48xlarge"]
      capacity_type  = "CAPACITY_BLOCK"
      min_size       = 4
      max_size       = 4
      enable_efa_support      = true
      instance_market_options = { market_type = "capacity-block" }
      capacity_reservation_specification = {
        capacity_reservation_target = { capacity_reservation_id = "cr-0a1b2c3d4e5f67890" }
      }
    }
  }
}
