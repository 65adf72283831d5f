#include "cli/output_files.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/atomic_file.h"
#include "base/check.h"
#include "cli/console.h"
#include "cli/options.h"

namespace plait::cli {
namespace {

struct Named {
  const char* option;
  const std::string& path;
};

std::array<Named, 4> all_of(const OutputFiles& files) {
  return {{{"--json", files.json},
           {"--trace", files.trace},
           {"--html", files.html},
           {"--svg", files.svg}}};
}

// Compares paths, however they are spelled.
bool are_same(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  if (a == b) return true;
  std::error_code failure;  // a path that can't be resolved is compared as typed
  return std::filesystem::weakly_canonical(a, failure) ==
         std::filesystem::weakly_canonical(b, failure);
}

}  // namespace

std::string OutputFiles::show() const {
  std::string text;
  const auto say = [&](const char* what, const std::string& path) {
    if (!path.empty()) text += what + path + "\n";
  };
  say("Timeline: ", html);
  say("Picture: ", svg);
  say("For Perfetto: ", trace);
  return text;
}

void OutputFiles::write_json(const nlohmann::ordered_json& figures) const {
  if (json.empty()) return;
  const std::string text = figures.dump(2) + "\n";
  if (silences()) return answer(text);
  write_file(json, text);
}

void add_json_option(Options& options, OutputFiles& files) {
  options.add("--json", "FILE", files.json, "also write the results as JSON; -: print only JSON");
}

void add_options(Options& options, OutputFiles& files) {
  add_json_option(options, files);
  options.add("--trace", "FILE", files.trace, "write a timeline for Perfetto (ui.perfetto.dev)");
  options.add("--html", "FILE", files.html, "write the timeline as a page for a browser");
  options.add("--svg", "FILE", files.svg, "write the timeline as a picture for a document");
}

// Two equal names would leave only the file written last.
void check_distinct(const OutputFiles& files, const std::vector<OtherFile>& others) {
  const auto all = all_of(files);
  for (std::size_t i = 0; i < all.size(); ++i) {
    PLAIT_CHECK(all[i].path != "-" || &all[i].path == &files.json, all[i].option,
                " - : only --json can go to standard output");
    for (std::size_t j = 0; j < i; ++j) {
      PLAIT_CHECK(!are_same(all[i].path, all[j].path), all[j].option, " and ", all[i].option,
                  " both name ", all[i].path);
    }
    for (const OtherFile& other : others) {
      PLAIT_CHECK(!are_same(all[i].path, other.path), all[i].option, ' ', all[i].path,
                  " would be written over ", other.what);
    }
  }
}

void check_writable(const OutputFiles& files) {
  for (const Named& one : all_of(files)) {
    if (!one.path.empty() && one.path != "-") base::check_writable(one.path);
  }
}

void write_file(const std::string& path, const std::string& text) {
  base::AtomicFile file(path);
  file.append(text);
  file.commit();
}

}  // namespace plait::cli
