// One figure as one line of JSON on standard output.
//
//   Figure("kernel cost").text("shape", name).number("m", m).number("us", us).print();
//   {"figure": "kernel cost", "shape": "llama2-70b qkv", "m": 2048, "us": 71.25}
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

namespace plait::gpu {

class Figure {
 public:
  explicit Figure(const std::string& name) { text("figure", name); }

  // Keys and values are the programs' own words: printable, without quotes or backslashes.
  Figure& text(const char* key, const std::string& value) { return add(key, '"' + value + '"'); }

  // JSON has no infinities and NaNs: they become null.
  Figure& number(const char* key, double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.10g", value);
    return add(key, std::isfinite(value) ? digits : "null");
  }

  Figure& yes_or_no(const char* key, bool value) { return add(key, value ? "true" : "false"); }

  void print() const {
    std::printf("{%s}\n", line_.c_str());
    std::fflush(stdout);
  }

 private:
  Figure& add(const char* key, const std::string& value) {
    if (!line_.empty()) line_ += ", ";
    line_ += '"' + std::string(key) + "\": " + value;
    return *this;
  }

  std::string line_;
};

}  // namespace plait::gpu
