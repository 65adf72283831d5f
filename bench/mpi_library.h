// MPI in a benchmark: its start, its end, and its name.
#pragma once

#include <mpi.h>

#include <array>
#include <string>

namespace plait::bench {

class Mpi {
 public:
  Mpi(int* argc, char*** argv) { MPI_Init(argc, argv); }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  ~Mpi() { MPI_Finalize(); }
};

// "Open MPI v4.1.4"
inline std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text = {};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole(text.data(), static_cast<std::size_t>(length));
  return whole.substr(0, whole.find(','));
}

}  // namespace plait::bench
