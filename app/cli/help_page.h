// A page of help, as data. `plait VERB --help` prints it; `plait man` and `plait completion` write
// it for other readers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/verbs.h"

namespace plait::cli {

struct HelpPage {
  struct Entry {
    std::string name;
    std::string summary = {};
  };
  struct List {
    std::string title;
    std::vector<Entry> entries;
  };
  struct Option {
    std::vector<std::string> names;  // "-d", "--dtype"
    std::string value = {};          // "DTYPE"; empty: a flag
    std::string purpose = {};
    std::vector<std::string> choices = {};  // known values, which need not be all
  };

  std::string name;     // "bench matmul"; empty: the whole command's
  std::string usage;    // the words after "plait ", a line for each form
  std::string purpose;  // paragraphs, between empty lines
  std::vector<List> lists = {};
  std::vector<Option> options = {};
  std::string examples = {};            // paragraphs; the exit statuses, and commands
  std::vector<Entry> subpages = {};     // words after which the command has other options
  std::vector<std::string> words = {};  // known words in the place of the first operand
};

// Prints an overview: a page whose options are on its subpages, or with kDescribe throws it.
void show_overview(const HelpPage& page, Words words);

}  // namespace plait::cli
