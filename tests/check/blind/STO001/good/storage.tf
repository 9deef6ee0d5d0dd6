# Dataset tier for the ASR team
resource "aws_fsx_lustre_file_system" "asr" {
  deployment_type             = "PERSISTENT_2"
  storage_type                = "SSD"
  storage_capacity            = 7200
  per_unit_storage_throughput = 250
  file_system_type_version    = "2.15"
  data_compression_type       = "LZ4"
  subnet_ids                  = [var.subnet_id]
  security_group_ids          = [var.lustre_sg_id]

  metadata_configuration {
    mode = "AUTOMATIC"
  }

  lifecycle {
    prevent_destroy = true
  }

  tags = {
    Team = "asr"
  }
}

output "mount_name" {
  value = aws_fsx_lustre_file_system.asr.mount_name
}

variable "subnet_id" {
  type = string
}

variable "lustre_sg_id" {
  type = string
}
