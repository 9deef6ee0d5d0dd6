#!/usr/bin/env bash
# Builds the Kubernetes API server that the slow tests talk to, once, into a cache folder, and prints that folder. Debian
# has no binary package of it, but bookworm's source package (1.20.2) carries everything with its vendored modules; Go,
# etcd and a newer reflect2 come from bookworm's packages. Nothing is installed: packages are unpacked into a folder of
# this build, so no root is needed. Needs apt, a network with Debian's packages, 3 GB of disk while it builds, and about 260 s of processor time.
#
#   tools/build_kubernetes.sh [FOLDER]      FOLDER: ~/.cache/trainwright-tests/kubernetes-1.20.2
set -euo pipefail

version=1.20.2
target=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/trainwright-tests/kubernetes-$version}
programs="kube-apiserver kube-controller-manager"

mkdir -p "$(dirname "$target")"
exec 9>"$target.lock"
flock 9 # a second run waits here, then finds what the first one built
if [ -d "$target" ]; then
  echo "$target"
  exit 0
fi

fail() {
  echo "no Kubernetes API server: $*" >&2
  exit 1
}
for tool in apt-get dpkg-deb tar; do command -v "$tool" >/dev/null || fail "$tool is missing"; done

rm -rf "$target".building.* # of a build that was killed
work=$(mktemp -d "$target.building.XXXXXX")
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
cd "$work"

# The machine's own mirror, with sources added; only Debian's list, so that nothing else has to be reachable.
mkdir -p apt/state/lists/partial apt/cache/archives/partial apt/parts packages
{ sed 's/^Types:.*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true; } >apt/debian.sources
{ sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' /etc/apt/sources.list 2>/dev/null || true; } >apt/debian.list
mv apt/debian.sources apt/debian.list apt/parts/
apt=(apt-get -qq -o "Dir::State=$work/apt/state" -o "Dir::Cache=$work/apt/cache" -o Dir::Etc::sourcelist=/dev/null
  -o "Dir::Etc::sourceparts=$work/apt/parts" -o Debug::NoLocking=1 -o APT::Sandbox::User=)
"${apt[@]}" update || fail "Debian's package lists cannot be read"
"${apt[@]}" source --download-only kubernetes || fail "no source package kubernetes $version"
"${apt[@]}" download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server ||
  fail "a package cannot be fetched"
for package in ./*.deb; do dpkg-deb -x "$package" packages; done

tree=gopath/src/k8s.io/kubernetes
mkdir -p "$tree" built
tar -xf kubernetes_*"$version".orig.tar.* -C "$tree" --strip-components=1
# Go 1.18 and later: the vendored reflect2 reads the runtime's tables as they were before, and crashes.
rm -rf "$tree/vendor/github.com/modern-go/reflect2"
cp -r packages/usr/share/gocode/src/github.com/modern-go/reflect2 "$tree/vendor/github.com/modern-go/"

export GOROOT="$work/packages/usr/lib/go-1.19" GOPATH="$work/gopath" GOCACHE="$work/gocache" GO111MODULE=off GOFLAGS=-p=2
export CGO_ENABLED=0 GOGC=400
cd "$tree"
# The sources come without the one generated file that is too large for git: the schemas of the core kinds.
nice -n 5 "$GOROOT/bin/go" build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen || fail "no generator"
schemas=$(grep -rlR --include='*.go' '+k8s:openapi-gen=' pkg vendor/k8s.io | grep -v -e code-generator/ -e sample-apiserver/ |
  xargs -n1 dirname | sort -u | sed 's|^|k8s.io/kubernetes/|' | paste -sd,)
PATH="$GOROOT/bin:$PATH" "$work/openapi-gen" -i "$schemas" -p k8s.io/kubernetes/pkg/generated/openapi \
  -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations" \
  --output-base "$GOPATH/src" 2>"$work/openapi.log" || fail "$(tail -n 1 "$work/openapi.log")"
for program in $programs; do
  nice -n 5 "$GOROOT/bin/go" build -tags providerless,dockerless -ldflags "-s -w" -o "$work/built/$program" "./cmd/$program" ||
    fail "$program does not build"
done
cp "$work/packages/usr/bin/etcd" "$work/built/"
mv "$work/built" "$target"
echo "$target"
