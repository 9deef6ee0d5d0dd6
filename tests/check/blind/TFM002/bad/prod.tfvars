# terraform apply -var-file=prod.tfvars
region              = "us-east-2"
gpu_instance_types  = "g6e.12xlarge"
gpu_max_nodes       = 12
