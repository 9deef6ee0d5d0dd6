#!/bin/bash
# Lets the users of the directory in: their names, groups and ssh keys come from it, their home folders are made at the
# first login. Runs as root; safe to run again. Written by `trainwright plan`.
set -euo pipefail

# sshd asks the directory for a user's keys, beside those in the home folder.
install -d -m 0755 /etc/ssh/sshd_config.d
cat > /etc/ssh/sshd_config.d/50-trainwright-directory.conf.new << 'CONF'
AuthorizedKeysCommand /usr/bin/sss_ssh_authorizedkeys %u
AuthorizedKeysCommandUser nobody
CONF
if ! cmp -s /etc/ssh/sshd_config.d/50-trainwright-directory.conf.new /etc/ssh/sshd_config.d/50-trainwright-directory.conf; then
  mv /etc/ssh/sshd_config.d/50-trainwright-directory.conf.new /etc/ssh/sshd_config.d/50-trainwright-directory.conf
  # Where sssd starts this responder itself, the socket refuses to start.
  grep -Eqs '^[[:space:]]*services[[:space:]]*=.*\bssh\b' /etc/sssd/sssd.conf || systemctl enable --now sssd-ssh.socket
  systemctl reload ssh || systemctl reload sshd
fi
rm -f /etc/ssh/sshd_config.d/50-trainwright-directory.conf.new
# Ubuntu's images give sshd the command of EC2 Instance Connect on its command line, where it outweighs that file.
connect=systemd/system/ssh.service.d/ec2-instance-connect.conf
if [ -e "/usr/lib/$connect" ] && [ ! -e "/etc/$connect" ]; then
  install -d -m 0755 "$(dirname "/etc/$connect")"
  ln -s /dev/null "/etc/$connect"
  systemctl daemon-reload
  systemctl restart ssh
fi
