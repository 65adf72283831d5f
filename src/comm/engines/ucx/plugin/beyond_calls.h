// Facts that no call of UCX tells: they are read from the text that it prints, and from what the
// kernel tells of its descriptors.
#pragma once

#include <ucp/api/ucp.h>

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

// True if the user has set UCX_RNDV_THRESH, the size from which on UCX asks the receiver before it
// sends a message, in the environment or in one of UCX's files (ucx.conf).
bool is_threshold_set(const ucp_config_t* config);

// Nothing more is sent through the TCP connections of the worker with this descriptor; a send fails
// at once. Where UCX closes a connection, it sends a last message, and tries again and again while
// the kernel has no room for it. There is none for hours if the peer is stopped, or if the cable is
// cut.
void end_sending(int worker_descriptor) noexcept;

}  // namespace plait::comm::ucx
