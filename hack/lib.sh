# Helpers for the scripts in this directory; sourced, not run.

started=$SECONDS

# Progress goes to standard error: the results of scripts, such as a path, are on standard output.
step() { printf '== %s (%d s)\n' "$1" "$((SECONDS - started))" >&2; }

# long_step WHAT COMMAND...: a step that can take minutes. A line each half minute shows that the command goes on, except on a
# terminal, where cargo shows more. The lines end with the command, however that ends: they wait for its end at a pipe.
half_minute=30
long_step() {
  step "$1"
  { "${@:2}" 9>&-; } 9> >(while read -rt "$half_minute"; (($? > 128)); do [ -t 2 ] || step "still ${1%%:*}"; done)
}

fail() {
  printf '%s: %s\n' "$0" "$1" >&2
  exit 1
}

need_root() {
  [ "$(id -u)" = 0 ] || fail "needs root to install packages, start containers and boot virtual machines. Run it as root, in a virtual machine if you want to keep this machine unchanged."
}

install_packages() {
  step "installing $*"
  apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "$@" >&2
}

# need_programs PROGRAM[:PACKAGE]...: installs the packages of programs that are missing.
need_programs() {
  local program missing=()
  for program in "$@"; do
    command -v "${program%:*}" >/dev/null || missing+=("${program#*:}")
  done
  [ ${#missing[@]} != 0 ] || return 0
  need_root
  install_packages "${missing[@]}"
}

# Requires an installed Rust; installs the linker if it is missing.
need_rust() {
  if ! command -v cargo >/dev/null; then
    fail "cargo is missing: install Rust (rustup's stable toolchain, 1.89 or newer) and try again."
  fi
  if ! command -v cc >/dev/null; then
    need_root
    install_packages gcc libc6-dev
  fi
}

# Whether python3 can make environments, which are what the Python packages of these scripts are installed into. Debian
# has that in a package of its own.
have_venv() {
  python3 -c "import ensurepip, venv" 2>/dev/null && return
  [ "$(id -u)" = 0 ] && install_packages python3-venv
}

# The sum of "1+2+3" on standard input; 0 for nothing.
bc_sum() { local sum; read -r sum || true; echo "$((${sum:-0}))"; }

# That of Cargo.toml.
project_version() { cargo pkgid --locked | sed 's/.*[#@]//'; }

# The target of builds: this machine's, or the one that cross_compile selects.
target_tuple() { echo "${cross_target:-$(rustc --print host-tuple)}"; }

# Selects the target of the following builds, by architecture or tuple. Another one than this machine's is built with
# Debian 12's compiler, its standard library and the linker for that architecture, because rustup's standard libraries
# come from another place than Debian's linker and C library. Cargo stays this machine's.
cross_compile() {
  local tuple=$1 tools=$PWD/target/tools/aarch64 host
  host=$(rustc --print host-tuple)
  if [[ $tuple != *-* ]]; then tuple+=-unknown-linux-gnu; fi
  if [ "$tuple" = "$host" ]; then return; fi
  if [ "$tuple $host" != "aarch64-unknown-linux-gnu x86_64-unknown-linux-gnu" ]; then
    fail "cannot build for $tuple on $host: only for this machine, or for aarch64 on x86_64"
  fi
  source hack/debian.sh
  debian_unpacked "$tools" rustc-web libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross
  cross_target=$tuple
  export RUSTC=$tools/usr/bin/rustc LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$tools/usr/bin/aarch64-linux-gnu-gcc
}

# Options for builds that a person waits for: cargo's progress bar on a terminal, elsewhere no line for each crate.
cargo_progress() { [ -t 2 ] || echo --quiet; }

# Cargo for the tests and for the lab's programs, which run in containers and guests: static, and one build for both.
cargo_static() {
  local command=$1 target
  shift
  target=$(target_tuple)
  RUSTFLAGS="-C target-feature=+crt-static" cargo "$command" --locked --profile lab --target "$target" "$@"
}

# Cargo for shipped binaries: static, and reproducible in any directory. Without the path remapping, panic locations would
# contain the paths of the sources and of cargo's directory. With --target the flags do not apply to build scripts and
# procedural macros, which cannot be static. The benchmarks share the build.
cargo_shipped() {
  local command=$1 target
  shift
  target=$(target_tuple)
  RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo" \
    cargo "$command" --locked --release --target "$target" "$@"
}

# Like lab, for commands that start no containers or virtual machines.
lab_unprivileged() {
  need_rust
  long_step "building the lab: about five minutes the first time" cargo_static build $(cargo_progress) --package lab --bins
  exec "target/$(rustc --print host-tuple)/lab/lab" "$@"
}

# What the lab runs on this machine.
lab_programs=(mmdebstrap cpio mke2fs:e2fsprogs)

# Builds and executes the lab command. The same binary runs in guests, so it is built once.
lab() {
  need_root
  need_programs "${lab_programs[@]}"
  lab_unprivileged "$@"
}
