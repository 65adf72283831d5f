#!/usr/bin/env bash
# exported_symbols.sh LIBRARY: fails unless everything the library shows is named plait::something.
#
# The internals of a module live in plait::MODULE and must not be seen, so a second namespace is a failure too.
set -euo pipefail

names=$(nm -D --defined-only "$1" | cut -d' ' -f2- | c++filt)
kinds='(typeinfo (name )?for |vtable for |VTT for |(non-)?virtual thunk to )?'
public="^[A-Z] ${kinds}([a-z].* )?plait::([A-Z]|[a-z_0-9]+(\[abi:cxx11\])?(<.*)?\(|operator)"

grep -q 'plait::Error' <<<"$names" || { echo "$1 does not show plait::Error"; exit 1; }
if grep -vE "$public" <<<"$names"; then
  echo "$1 shows the names above: only what is marked PLAIT_EXPORT in namespace plait may be seen"
  exit 1
fi
