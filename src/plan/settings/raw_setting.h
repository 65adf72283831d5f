// A setting's value as it was written, and where it was written. The code that knows the type reads
// it.
//
//   settings.threads = static_cast<int>(raw.whole(0, 1024));
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

// Replaces control characters, which what people wrote may contain but a message must not.
std::string on_one_line(std::string text);

class RawSetting {
 public:
  struct Unusable {
    std::string what;  // the text of a value that no setting can have: "2.5", "bf16"
  };
  using Entries = std::vector<RawSetting>;
  using Value = std::variant<std::string, bool, std::int64_t, Entries, Unusable>;

  struct Line {
    std::string file;
    std::int64_t number;
  };

  // The value of a variable is always text; the reader converts it to the type that it wants.
  static RawSetting in_variable(const std::string& name, std::string text);
  static RawSetting in_file(const std::string& name, const Line& line, Value value);

  const std::string& name() const { return name_; }      // "threads", "PLAIT_THREADS"
  const std::string& origin() const { return origin_; }  // "plait.toml:3", "PLAIT_THREADS"

  // Each returns the value as that type, or throws a refusal.
  bool flag(std::string_view refusal = " is neither true nor false") const;
  std::int64_t whole(std::int64_t low, std::int64_t high) const;
  const std::string& text() const;
  Entries entries() const;  // of a table, or of a variable "NAME=VALUE; NAME=VALUE"

  // The entries of a table, which the parser fills; null if the value is not a table.
  Entries* table() { return std::get_if<Entries>(&value_); }

  // True if the value is this word, or any whole number.
  bool is(std::string_view word) const;
  bool is_whole() const;

  // Throws: the setting as it was written, then the reason.
  template <class... Parts>
  [[noreturn, gnu::cold]] void refuse(const Parts&... reason) const {
    base::fail(Code::invalid_argument, on_one_line(base::sentence(written_, reason...)));
  }

 private:
  RawSetting(std::string name, std::string origin, std::string written, Value value,
             bool is_variable);

  std::string name_;
  std::string origin_;
  std::string written_;
  Value value_;
  bool is_variable_;
};

}  // namespace plait::plan
