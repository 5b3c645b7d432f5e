#!/usr/bin/env bash
# Makes dist/xmpp-agent_VERSION_ARCH.oci.tar, an OCI image with the Debian package in dist/, without a
# daemon. It needs mmdebstrap, umoci, and root.
# Usage: packaging/image.sh VENV, a virtual environment with this project.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "$1")/bin

deb=$(realpath dist/xmpp-agent_*.deb)
version=$(dpkg-deb --field "$deb" Version)
arch=$(dpkg --print-architecture)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
created=$(date --utc --date "@$SOURCE_DATE_EPOCH" +%FT%TZ)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The number of the user is the same in every image, since volumes keep it.
user=900
mmdebstrap --quiet --mode=root --variant=apt --include=python3,adduser,ca-certificates \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --customize-hook="chroot \"\$1\" groupadd --system --gid $user xmpp-agent" \
  --customize-hook="chroot \"\$1\" useradd --system --uid $user --gid $user --no-create-home --home-dir /var/lib/xmpp-agent --shell /usr/sbin/nologin xmpp-agent" \
  --customize-hook="copy-in '$deb' /tmp" \
  --customize-hook='chroot "$1" sh -c "apt-get install --quiet=2 --no-install-recommends -y /tmp/*.deb >/dev/null"' \
  --customize-hook='rm "$1"/tmp/*.deb' \
  --customize-hook='rm -f "$1"/var/cache/ldconfig/aux-cache "$1"/etc/*- "$1"/var/log/*.log "$1"/var/log/apt/*' \
  "$suite" "$work/layer.tar" >/dev/null

image=$work/image
stamp=(--history.created "$created" --history.author xmpp-agent-component)
umoci init --layout "$image"
umoci new --image "$image:$version"
umoci raw add-layer --image "$image:$version" "${stamp[@]}" \
  --history.created_by "mmdebstrap $suite and $(basename "$deb")" "$work/layer.tar"
umoci config --image "$image:$version" "${stamp[@]}" --history.created_by configuration \
  --created "$created" --author xmpp-agent-component --architecture "$arch" --os linux \
  --config.user "$user:$user" \
  --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  --config.env XMPP_AGENT_CONFIG=/etc/xmpp-agent/agent.toml \
  --config.entrypoint /usr/bin/xmpp-agent --config.cmd run \
  --config.workingdir /var/lib/xmpp-agent --config.volume /var/lib/xmpp-agent \
  --config.stopsignal SIGTERM \
  --config.label org.opencontainers.image.title=xmpp-agent \
  --config.label "org.opencontainers.image.version=$version" \
  --config.label org.opencontainers.image.licenses=Apache-2.0 \
  --config.label org.opencontainers.image.source=https://github.com/xmpp-agent/xmpp-agent-component
"$bin/python" packaging/health_check.py "$image" "$version"
umoci gc --layout "$image"
tar --create --file "dist/xmpp-agent_${version}_$arch.oci.tar" --directory "$image" \
  --sort=name --owner=0 --group=0 --numeric-owner --mtime "@$SOURCE_DATE_EPOCH" .
