#!/usr/bin/env bash
# Install the system programs that tests use, where they are missing. Does nothing when all are there.
set -euo pipefail

declare -A packages=(
    [/usr/lib/postgresql/*/bin/postgres]=postgresql
    [/usr/bin/docker-compose]=docker-compose
    [/usr/bin/promtool]=prometheus
    [/usr/share/pocketsphinx/test/data/librivox/transcription]=pocketsphinx-testdata
    [/usr/bin/flite]=flite
    [/usr/bin/espeak-ng]=espeak-ng
    [/usr/bin/chromium]=chromium
    [/usr/sbin/nginx]=nginx-light
    [/usr/lib/*/girepository-1.0/GstRtspServer-1.0.typelib]=gir1.2-gst-rtsp-server-1.0
    [/usr/lib/python3/dist-packages/gi/__init__.py]=python3-gi
    [/usr/lib/*/gstreamer-1.0/libgstx264.so]=gstreamer1.0-plugins-ugly
    [/usr/lib/*/gstreamer-1.0/libgstrtp.so]=gstreamer1.0-plugins-good
    [/usr/lib/*/gstreamer-1.0/libgstapp.so]=gstreamer1.0-plugins-base
)
missing=()
for file in "${!packages[@]}"; do
    compgen -G "$file" >/dev/null || missing+=("${packages[$file]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "Please install: ${missing[*]} (tests that need them will fail without)" >&2
    exit 0
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1 # tests start what they need themselves: no package starts a service
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
