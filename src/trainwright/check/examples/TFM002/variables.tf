variable "region" {}
variable "node_count" {
  default = 2
}
