#!/bin/bash
set -euo pipefail
export RESERVATION="${1}"
aws ec2 describe-capacity-reservations --capacity-reservation-ids "${RESERVATION}"
