// A file that appears complete or not at all. It is written under another name in the same
// directory, and commit() renames it.
//
//   base::AtomicFile file(path);
//   file.append(text);
//   file.commit();      // without it, nothing is left behind
//
// Readers never see a half-written file. Anything but a regular file (a pipe, /dev/null) is written
// in place; a symbolic link stays, and the file that it points to is replaced. Failures throw
// Error{system} with the path.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"

namespace plait::base {

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void append(std::string_view text);
  void commit();

 private:
  std::string path_;       // as the caller gave it, for error messages
  std::string target_;     // the path with links followed
  std::string temporary_;  // empty: written in place, committed or renamed
  Fd fd_;
};

// Throws what AtomicFile would throw for this path, and leaves nothing behind. Call it before long
// work whose result is to be written there.
void check_writable(const std::string& path);

}  // namespace plait::base
