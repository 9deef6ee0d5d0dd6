# {{ title | comment }} ({{ os | comment }}) with version set {{ set.name | comment }}, prepared by the roles in ansible/.
# Written by `trainwright image machine`; build.sh beside it runs it. Packer 1.6 and later read it.

variable "region" {
  type    = string
  default = {{ region | hcl }}
}

variable "instance_type" {
  type    = string
  default = {{ instance | hcl }}
}

variable "subnet_id" {
  type    = string
  default = ""
}

variable "build" {
  type    = string
  default = "1"
}

source "amazon-ebs" "image" {
  region                      = var.region
  instance_type               = var.instance_type
  subnet_id                   = var.subnet_id
  ami_name                    = "{{ name | plain }}-${var.build}"
  ami_description             = {{ description | hcl }}
  ssh_username                = {{ user | hcl }}
  associate_public_ip_address = true
  encrypt_boot                = true

  source_ami_filter {
    filters = {
      name                = {{ source_name | hcl }}
      root-device-type    = "ebs"
      virtualization-type = "hvm"
    }
    owners      = ["amazon"]
    most_recent = true
  }

  launch_block_device_mappings {
    device_name           = {{ device | hcl }}
    volume_size           = {{ volume | plain }}
    volume_type           = "gp3"
    iops                  = 6000
    throughput            = 500
    delete_on_termination = true
  }

  tags = {
{% for key, value in tags.items() %}
    {{ key | hcl }} = {{ value | hcl }}
{% endfor %}
  }
}

build {
  sources = ["source.amazon-ebs.image"]

  provisioner "ansible" {
    playbook_file = "${path.root}/ansible/site.yml"
    user          = {{ user | hcl }}
    use_proxy     = false
  }
}
