#!/bin/bash
# Puts the Python environment of this plan's jobs on the shared file system: Python 3.12.16, PyTorch 2.13.0 with CUDA 13.0 and
# its NCCL, every package pinned by its hash. A service of the head node makes it in the background, once, and tries again
# after a failure or a reboot; a job that starts earlier waits for it. Compute nodes install nothing: they use the folder.
# Runs as root on the head node, when it has been configured and after each update. $1: s3://BUCKET/FOLDER with the plan's files.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/trainwright/node

from=$1
root=/fsx/trainwright
runtime=/fsx/trainwright/runtime/e0cafa3aad16
code=/fsx/trainwright/code/8553197fe212

# Everybody may keep runs here; what all jobs run is root's.
install -d -m 1777 "$root" "$root/runs"
install -d -m 0755 "$root/runtime" "$root/code" "$runtime" "$runtime/bin"
install -d -m 1777 /fsx/trainwright/runs/pretrain # Slurm opens a job's log before the job could make its folder

# fetch KEY SHA256 TO: a file of the plan, as it was planned.
fetch() {
  if [ -e "$3" ] && echo "$2  $3" | sha256sum --check --status; then return; fi
  aws s3 cp --only-show-errors --region "${cfn_region:?}" "$from/$1" "$3.new"
  echo "$2  $3.new" | sha256sum --check --quiet
  mv "$3.new" "$3"
}
fetch 521b8ac3cfea2ef5/requirements.txt 521b8ac3cfea2ef599471b342052a394058d1d5172c22660a8220c1e539650f2 /fsx/trainwright/runtime/e0cafa3aad16/requirements.txt
fetch 836ac0c91c6cb60f/uv.txt 836ac0c91c6cb60f6c1d36bde3bfd4a2c9c21b19c40f360b1fac8e838f613006 /fsx/trainwright/runtime/e0cafa3aad16/uv.txt
fetch 1776f86fee37b7c7/trainwright.zip 1776f86fee37b7c7fb70f4d0d3cb93be123676405e632e1e636d91a8935111d9 /fsx/trainwright/code/8553197fe212.zip

# The node side of Trainwright, for jobs whose run folder brings no code. It becomes visible when it is complete.
if [ ! -d "$code" ]; then
  rm -rf "$code.new"
  python3 -m zipfile -e /fsx/trainwright/code/8553197fe212.zip "$code.new"
  mv -T "$code.new" "$code"
fi
ln -sfn "$code" "$root/code/current.new"
mv -T "$root/code/current.new" "$root/code/current"

cat > "$runtime/bin/activate.new" <<'ACTIVATE'
# shellcheck shell=bash
# To be sourced by a job or a person: waits until the head node has made the environment, then activates it.
trainwright_runtime=/fsx/trainwright/runtime/e0cafa3aad16
trainwright_waited=0
while [ ! -e "$trainwright_runtime/complete" ]; do
  if [ "$trainwright_waited" -ge 2700 ]; then
    echo "error: the head node has not finished $trainwright_runtime; \`systemctl status trainwright-runtime\` there shows why." >&2
    echo "Its log ends with:" >&2
    tail -n 5 "$trainwright_runtime/log" >&2
    case $- in *i*) return 1 ;; *) exit 1 ;; esac
  fi
  [ "$trainwright_waited" -gt 0 ] || echo "waiting for the head node to finish $trainwright_runtime" >&2
  sleep 5
  trainwright_waited=$((trainwright_waited + 5))
done
# shellcheck disable=SC1091
. "$trainwright_runtime/venv/bin/activate"
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}/fsx/trainwright/code/current
# NCCL opens its EFA plugin, libnccl-net.so, by name. The EFA installer notes the folder for the loader; systems differ in it.
for trainwright_plugin in $(cat /etc/ld.so.conf.d/100_ofinccl.conf 2> /dev/null) \
  "/opt/amazon/ofi-nccl/lib/$(uname -m)-linux-gnu" /opt/amazon/ofi-nccl/lib64 /opt/amazon/ofi-nccl/lib ''; do
  if [ -n "$trainwright_plugin" ] && [ -e "$trainwright_plugin/libnccl-net.so" ]; then
    export LD_LIBRARY_PATH=$trainwright_plugin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    break
  fi
done
if [ -z "$trainwright_plugin" ] && [ -e /dev/infiniband/uverbs0 ]; then
  echo "warning: no libnccl-net.so under /opt/amazon/ofi-nccl: NCCL will use TCP and not EFA" >&2
fi
unset trainwright_runtime trainwright_waited trainwright_plugin
ACTIVATE
mv "$runtime/bin/activate.new" "$runtime/bin/activate"

cat > /usr/local/sbin/trainwright-runtime.new <<'MAKE'
#!/bin/bash
# Makes the Python environment, unless it is complete. A second one waits for the first; what a killed one had fetched is
# still in the cache.
set -euo pipefail
umask 022
runtime=/fsx/trainwright/runtime/e0cafa3aad16
exec >> "$runtime/log" 2>&1
exec 9> "$runtime/lock"
flock 9
[ ! -e "$runtime/complete" ] || exit 0
echo "$(date -u +%FT%TZ) making $runtime on $(hostname)"

tool=/opt/trainwright/uv-0.13.7
if ! [ -x "$tool/bin/uv" ]; then
  if ! python3 -c 'import ensurepip, venv' && command -v apt-get > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 update
    apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 install python3-venv
  fi
  rm -rf "$tool.new"
  python3 -m venv "$tool.new"
  "$tool.new/bin/pip" install --quiet --no-deps --require-hashes --only-binary :all: -r "$runtime/uv.txt"
  rm -rf "$tool"
  mv -T "$tool.new" "$tool"
fi

export HOME=/root UV_CACHE_DIR=/var/cache/trainwright/uv UV_PYTHON_INSTALL_DIR=$runtime/python UV_LINK_MODE=copy
export UV_NO_PROGRESS=1 UV_HTTP_TIMEOUT=300 UV_NO_CONFIG=1
"$tool/bin/uv" python install --no-bin 3.12.16
# A package that was half copied when the last try ended must not count as installed.
rm -rf "$runtime/venv"
"$tool/bin/uv" venv --managed-python --python 3.12.16 "$runtime/venv"
# Jobs cannot write here: what Python would compile at every start is compiled now.
"$tool/bin/uv" pip sync --python "$runtime/venv/bin/python" --require-hashes --only-binary :all: --compile-bytecode \
  "$runtime/requirements.txt"
"$runtime/venv/bin/python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'
sync -f "$runtime"
date -u +%FT%TZ > "$runtime/complete.new"
mv "$runtime/complete.new" "$runtime/complete"
echo "$(date -u +%FT%TZ) complete"
rm -rf "$UV_CACHE_DIR"
MAKE
chmod 0755 /usr/local/sbin/trainwright-runtime.new
mv /usr/local/sbin/trainwright-runtime.new /usr/local/sbin/trainwright-runtime

cat > /etc/systemd/system/trainwright-runtime.service <<'UNIT'
[Unit]
Description=Make the Python environment of training jobs on the shared file system
Wants=network-online.target
After=network-online.target remote-fs.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/local/sbin/trainwright-runtime
Restart=on-failure
RestartSec=60

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable trainwright-runtime
systemctl restart --no-block trainwright-runtime
