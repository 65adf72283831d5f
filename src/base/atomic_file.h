// A file that appears complete or not at all: written beside its place under another name, and
// moved there by commit().
//
//   base::AtomicFile file(path);
//   file.append(text);
//   file.commit();      // without it, nothing is left behind
//
// Readers never see a half-written file. What is no regular file (a pipe, /dev/null) is written in
// place; a symbolic link stays, and what it points to is replaced. Failures throw
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
  std::string path_;       // as the caller gave it, for sentences
  std::string target_;     // where it leads, links followed
  std::string temporary_;  // empty: written in place, committed, or moved away
  Fd fd_;
};

// Throws as the AtomicFile would that is to be written there later; leaves nothing behind. For long
// work whose result would have no place.
void check_writable(const std::string& path);

}  // namespace plait::base
