# expect: 3:27
resource "aws_fsx_lustre_file_system" "data" {
  storage_capacity      = "1200GiB"
  subnet_ids            = [aws_subnet.a.id]
  deployment_type       = "SCRATCH_2"
}
