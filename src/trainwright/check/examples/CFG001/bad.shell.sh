#!/bin/bash
# expect: 4:20
set -euo pipefail
export FILE_SYSTEM=fs-xxxxxxxx
export RESERVATION=PLACEHOLDER_RESERVATION
aws ec2 describe-capacity-reservations --capacity-reservation-ids "${RESERVATION}"
