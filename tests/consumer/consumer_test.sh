#!/usr/bin/env bash
# consumer_test.sh install|shared|static|pkg_config BUILD_DIR
#
# `install` installs the build tree and moves the result; the others build the project beside this file against it
# and run it. All of it happens below BUILD_DIR/consumer.
set -euo pipefail

way=$1
build=$2
project=$(cd "$(dirname "$0")/project" && pwd)
stage=$build/consumer
prefix=$stage/moved

install_tree() {
  rm -rf "$stage"
  cmake --install "$build" --prefix "$stage/first"
  # An installed path that is absolute would break here.
  mv "$stage/first" "$prefix"
  if grep -rIl "$stage/first" "$prefix"; then
    echo "the files above name the folder they were first installed to"
    return 1
  fi
  use_command
}

# The command finds its plugins where they were moved to.
use_command() {
  local found transport
  found=$("$prefix/bin/plait" info)
  for transport in mpi ucx; do
    compgen -G "$prefix/lib/plait/libplait_$transport*.so" >/dev/null || continue
    if ! grep -qE "^ +$transport +yes" <<<"$found"; then
      printf '%s\nthe installed command does not find its plugin for %s\n' "$found" "$transport"
      return 1
    fi
  done
}

use_by_cmake() {
  cmake -G Ninja -S "$project" -B "$stage/$way" -DPLAIT_LIBRARY="$1" -DCMAKE_PREFIX_PATH="$prefix"
  cmake --build "$stage/$way"
}

use_by_pkg_config() {
  local folder flags
  folder=$(dirname "$(find "$prefix" -name plait.pc)")
  read -ra flags <<<"$(PKG_CONFIG_PATH=$folder pkg-config --cflags --libs plait)"
  mkdir -p "$stage/$way"
  "${CXX:-c++}" -std=c++20 "$project/main.cc" "${flags[@]}" -Wl,-rpath,"$(dirname "$folder")" \
    -o "$stage/$way/consumer"
}

# Which libplait the program loads: its name, or nothing where plait was linked statically.
loaded_library() { readelf -d "$stage/$way/consumer" | grep -o 'libplait\.so[0-9.]*' || true; }

case $way in
  install) install_tree; exit ;;
  shared) use_by_cmake plait::plait ;;
  static) use_by_cmake plait::plait_static ;;
  pkg_config) use_by_pkg_config ;;
  *) echo "unknown way: $way"; exit 2 ;;
esac

"$stage/$way/consumer"
if [[ $way == static && -n $(loaded_library) || $way != static && -z $(loaded_library) ]]; then
  echo "linked the wrong library: '$(loaded_library)'"
  exit 1
fi
