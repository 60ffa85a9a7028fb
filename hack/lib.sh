# Helpers of the scripts beside this file; sourced, not run.

started=$SECONDS

step() { printf '== %s (%d s)\n' "$1" "$((SECONDS - started))"; }

fail() {
  printf '%s: %s\n' "$0" "$1" >&2
  exit 1
}

need_root() {
  [ "$(id -u)" = 0 ] || fail "needs root: it installs packages by name, starts containers and virtual servers. Run it as root, in a virtual machine if you would rather not do that here."
}

install_packages() {
  step "installing $*"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# Rust as installed, and the linker that it uses.
need_rust() {
  if ! command -v cargo >/dev/null; then
    fail "cargo is not there: install Rust (rustup's stable toolchain, 1.89 or newer) and try again."
  fi
  if ! command -v cc >/dev/null; then
    need_root
    install_packages gcc libc6-dev
  fi
}

# The sum of "1+2+3" on standard input; 0 for nothing.
bc_sum() { local sum; read -r sum || true; echo "$((${sum:-0}))"; }

# Cargo for the tests and for the lab's own programs, which containers and guests run: static, and one build for both.
cargo_static() {
  local command=$1 target
  shift
  target=$(rustc --print host-tuple)
  RUSTFLAGS="-C target-feature=+crt-static" cargo "$command" --locked --profile lab --target "$target" "$@"
}

# Cargo for what ships: static, and the same bytes wherever the sources and cargo's own directory are, which otherwise
# would be told by places in the code that messages name. Naming the target keeps the flags away from build scripts and
# procedural macros, which cannot be static. The benchmarks share the build.
cargo_shipped() {
  local command=$1 target
  shift
  target=$(rustc --print host-tuple)
  RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo" \
    cargo "$command" --locked --release --target "$target" "$@"
}

# As the next one, for what starts no containers and no virtual servers.
lab_unprivileged() {
  need_rust
  step "building the lab"
  cargo_static build --quiet --package lab --bins
  exec "target/$(rustc --print host-tuple)/lab/lab" "$@"
}

# Builds the lab's command and becomes it: the very program that also runs in guests, so that it is built once.
lab() {
  need_root
  lab_unprivileged "$@"
}
