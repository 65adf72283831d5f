// Identifies a process to others on its host, so that they can see that it has ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace plait::base {

struct ProcessMark {
  pid_t pid = 0;
  std::uint64_t start = 0;  // see start_of()
  bool is_visible = false;  // from here: kernel and namespaces of pids and of time are the same

  bool has_ended() const;
};

// This process's, as words. Another process, perhaps on another host, reads what they mean there.
std::string mark_of_this_process();
ProcessMark read_process_mark(std::string_view words);

}  // namespace plait::base
