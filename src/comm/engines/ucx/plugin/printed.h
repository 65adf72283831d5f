// Reads the text that UCX prints: the only way to learn some of what it knows.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace plait::comm::ucx {

// The text that `print` writes to the stream that it gets; empty if there is no memory for it.
template <typename Print>
std::string printed(Print&& print) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  print(stream);
  std::fclose(stream);
  std::string copy(text, bytes);
  std::free(text);  // NOLINT(cppcoreguidelines-no-malloc): open_memstream has allocated it
  return copy;
}

}  // namespace plait::comm::ucx
