// A table of text whose columns are as wide as their widest cells.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace plait::cli {

class Table {
 public:
  // The first `left` columns are aligned to the left, the others to the right.
  Table(std::vector<std::string> head, std::size_t left);

  // Missing cells at the end stay empty.
  void add(std::vector<std::string> row);

  std::string text() const;

 private:
  std::size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

// An averaged or predicted time, as a table shows it: "5.0 us".
std::string show_time(double nanoseconds);

}  // namespace plait::cli
