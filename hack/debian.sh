# Debian 12 packages for scripts in this directory, unpacked under target/; sourced, not run. Nothing is installed and no
# package source of the machine is changed, so root is not needed.

# apt with private directories, two architectures, and no package taken as installed.
private_apt() {
  apt-get -qq -o "Dir::Etc::SourceList=$1/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o "Dir::State::Lists=$1/lists" -o "Dir::State::Status=$1/status" -o "Dir::Cache=$1/cache" \
    -o APT::Architectures=amd64,arm64 -o Acquire::Languages=none -o "APT::Sandbox::User=$(id -un)" "${@:2}"
}

# The machine's own sources of Debian 12 and its updates. sources.list(5) has two formats and many options: apt reads it.
debian_sources() {
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  apt-get update --print-uris -o Dir::State::Lists=/dev/null 2>/dev/null |
    sed -nE "s,^'(.*)/dists/(bookworm(-updates|-security)?)/InRelease' .*,deb [signed-by=$keyring] \1 \2 main,p" | sort -u
}

# Another suite from the mirror of Debian 12.
debian_suite() { debian_sources | sed -n "s, bookworm main\$, $1 main,p"; }

# debian_unpacked DIR PACKAGE...: packages and what they depend on except the C library, which is this machine's; a
# package with an architecture (PACKAGE:arm64) or from another suite (PACKAGE/SUITE, all from the same) without what it
# depends on.
debian_unpacked() {
  local directory=$1 apt=$PWD/target/tools/apt archive package sources
  shift
  if [ "$(cat "$directory/packages" 2>/dev/null)" = "$*" ]; then return; fi
  case "$1" in
    */*) sources=$(debian_suite "${1#*/}") ;;
    *) sources=$(debian_sources) ;;
  esac
  if [ -z "$sources" ] || [[ $1 != */* && $sources != *" bookworm-security "* ]]; then
    fail "$* cannot be fetched: Debian 12 (bookworm) and its security updates must be among this machine's package sources"
  fi
  echo "fetching $*" >&2
  rm -rf "$directory" "$apt"
  mkdir -p "$directory" "$apt/lists/partial" "$apt/cache/archives/partial"
  echo "$sources" >"$apt/sources.list"
  touch "$apt/status"
  (
    cd "$apt/cache/archives"
    private_apt "$apt" update
    for package in "$@"; do
      case "$package" in
        *:* | */*) private_apt "$apt" download "$package" ;;
        *) private_apt "$apt" install --download-only --yes --no-install-recommends "$package" ;;
      esac
    done
    rm -f libc6_* libc6-dev_* libc-*
  ) >&2
  for archive in "$apt"/cache/archives/*.deb; do dpkg -x "$archive" "$directory"; done
  rm -rf "$apt"
  echo "$*" >"$directory/packages"
}
