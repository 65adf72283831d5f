# shellcheck shell=bash
# Installs the Debian packages that building and checking need.

demo_packages=(
  cmake ninja-build g++ pkg-config git python3
  libhwloc-dev libcli11-dev libfmt-dev nlohmann-json3-dev
)
build_packages=("${demo_packages[@]}" libgtest-dev libbenchmark-dev libdnnl-dev libopenmpi-dev openmpi-bin
  libucx-dev)
python_packages=(python3-dev python3-venv)
check_packages=("${python_packages[@]}" libmpich-dev mpich clang-tidy-19 libomp-19-dev clang-format-19 shellcheck
  chromium chromium-driver iproute2 mandoc fish zsh)

# need_packages demo|build|python|check: `demo` has the needs of the command, `build` those of all programs, `python`
# also those of the Python package; `check` is all.
need_packages() {
  local wanted=("${build_packages[@]}") missing
  [[ $1 != demo ]] || wanted=("${demo_packages[@]}")
  [[ $1 != python ]] || wanted+=("${python_packages[@]}")
  [[ $1 != check ]] || wanted+=("${check_packages[@]}")
  need_debian
  missing=$(missing_packages "${wanted[@]}")
  [[ -n $missing ]] || return 0
  # Word splitting is intended: one name per word.
  # shellcheck disable=SC2086
  install_packages $missing
}

need_debian() {
  local id=unknown
  [[ ! -r /etc/os-release ]] || id=$(. /etc/os-release && printf '%s' "$ID")
  [[ $id != debian ]] || return 0
  say "./do installs what it needs from Debian's packages, and this is '$id': get a C++20 compiler, CMake 3.25," \
    "Ninja, GoogleTest and Google Benchmark (tests), oneDNN (to compare with), hwloc (topology), CLI11, fmt and" \
    "nlohmann-json (the command), MPI 3.1 and UCX (their transports) and the clang 19 tools (lint), then run" \
    "cmake --preset release." >&2
  exit 1
}

# missing_packages NAME...: lists those that are not installed.
missing_packages() {
  local name installed
  # dpkg-query fails if a name is unknown, but still lists the others.
  # shellcheck disable=SC2016
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for name in "$@"; do
    grep -qxF "installed $name" <<<"$installed" || printf '%s\n' "$name"
  done
}

install_packages() {
  need_root "plait needs these Debian packages, and only root can install them: $*"
  say "installing $*"
  step 'package lists' "${root[@]}" apt-get update
  step 'packages' "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends "$@"
}

root=()  # a prefix for commands of root

# need_root WHY: sets `root`, or ends.
need_root() {
  ((EUID != 0)) || return 0
  if ! command -v sudo >/dev/null || ! may_sudo; then
    say "$1" >&2
    exit 1
  fi
  root=(sudo)
}

# Asks for the password only on a terminal.
may_sudo() {
  if [[ -t 0 ]]; then sudo -v; else sudo -n true 2>/dev/null; fi
}
