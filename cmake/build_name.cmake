# cmake -D OUT=FILE -D VERSION=V -D ROOT=FOLDER -D "SOURCES=FILE;..." -P build_name.cmake
#
# Writes the source of comm::build_name(): the version, and a hash of the sources that must be equal on all ranks.
foreach(file IN LISTS SOURCES)
  file(RELATIVE_PATH name ${ROOT} ${file})
  file(SHA256 ${file} hash)
  string(APPEND hashes "${name} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 12 hash)
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[
#include "comm/core/build_name.h"

namespace plait::comm {

std::string_view build_name() { return "@VERSION@+@hash@"; }

}  // namespace plait::comm
]])
