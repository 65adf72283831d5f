// A value that somebody wrote for a setting, and where. Whoever knows what it should be reads it.
//
//   settings.threads = static_cast<int>(given.whole(0, 1024));
//   // → plait.toml:3: threads = 2.5 is not a whole number from 0 to 1024
//   // → PLAIT_THREADS=2.5 is not a whole number from 0 to 1024
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/check.h"

namespace plait::plan {

// What people wrote may have control characters in it, and a sentence has none.
std::string on_one_line(std::string text);

class Given {
 public:
  struct Unusable {
    std::string what;  // "2.5", "bf16": nothing that a setting could be, as it is written
  };
  using Entries = std::vector<Given>;
  using Value = std::variant<std::string, bool, std::int64_t, Entries, Unusable>;

  struct Line {
    std::string file;
    std::int64_t number;
  };

  // All that a variable holds is text, which is read as what is wanted.
  static Given in_variable(const std::string& name, std::string text);
  static Given in_file(const std::string& name, const Line& line, Value value);

  const std::string& name() const { return name_; }      // "threads", "PLAIT_THREADS"
  const std::string& origin() const { return origin_; }  // "plait.toml:3", "PLAIT_THREADS"

  // The value as what is wanted, or else refused.
  bool flag() const;
  std::int64_t whole(std::int64_t low, std::int64_t high) const;
  const std::string& text() const;
  Entries entries() const;  // of a table; of a variable "NAME=VALUE; NAME=VALUE"

  // Where the entries of a table are kept, while it is read; null: it is none.
  Entries* table() { return std::get_if<Entries>(&value_); }

  // Whether that word is written there, or any whole number.
  bool is(std::string_view word) const;
  bool is_whole() const;

  // With what is written before the reason.
  template <class... Parts>
  [[noreturn, gnu::cold]] void refuse(const Parts&... reason) const {
    base::fail(Code::invalid_argument, on_one_line(base::sentence(written_, reason...)));
  }

 private:
  Given(std::string name, std::string origin, std::string written, Value value, bool is_variable);

  std::string name_;
  std::string origin_;
  std::string written_;
  Value value_;
  bool is_variable_;
};

}  // namespace plait::plan
