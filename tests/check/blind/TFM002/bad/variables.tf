variable "region" {
  type    = string
  default = "us-west-2"
}

variable "gpu_instance_type" {
  type    = string
  default = "g5.12xlarge"
}

variable "gpu_max_nodes" {
  type    = number
  default = 2
}
