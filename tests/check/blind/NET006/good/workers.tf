# Launch template for the self-managed p4d workers
resource "aws_launch_template" "p4d" {
  name_prefix   = "p4d-train-"
  image_id      = var.ami_id
  instance_type = "p4d.24xlarge"

  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 2
  }

  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_size = 300
      volume_type = "gp3"
    }
  }

  placement {
    group_name = aws_placement_group.train.name
  }

  network_interfaces {
    device_index       = 0
    network_card_index = 0
    interface_type     = "efa"
    security_groups    = [aws_security_group.efa.id]
    subnet_id          = var.private_subnet_id
  }

  network_interfaces {
    device_index       = 1
    network_card_index = 1
    interface_type     = "efa"
    security_groups    = [aws_security_group.efa.id]
    subnet_id          = var.private_subnet_id
  }

  network_interfaces {
    device_index       = 1
    network_card_index = 2
    interface_type     = "efa"
    security_groups    = [aws_security_group.efa.id]
    subnet_id          = var.private_subnet_id
  }

  network_interfaces {
    device_index       = 1
    network_card_index = 3
    interface_type     = "efa"
    security_groups    = [aws_security_group.efa.id]
    subnet_id          = var.private_subnet_id
  }
}

resource "aws_placement_group" "train" {
  name     = "p4d-train"
  strategy = "cluster"
}

resource "aws_security_group" "efa" {
  name   = "p4d-efa"
  vpc_id = var.vpc_id

  ingress {
    from_port = 0
    to_port   = 0
    protocol  = "-1"
    self      = true
  }

  egress {
    from_port = 0
    to_port   = 0
    protocol  = "-1"
    self      = true
  }

  egress {
    from_port   = 443
    to_port     = 443
    protocol    = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

variable "ami_id" { type = string }
variable "vpc_id" { type = string }
variable "private_subnet_id" { type = string }
