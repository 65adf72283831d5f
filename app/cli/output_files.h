// The files that a verb writes, besides its printed output.
//
//   OutputFiles files;
//   add_options(options, files);     // --json, --trace, --html, --svg
//   ...
//   check(files);                    // before measuring
//   files.write_json(json);          // at the end
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace plait::cli {

class Options;

struct OutputFiles {
  std::string json = {};   // -: standard output, with nothing else
  std::string trace = {};  // a timeline for Perfetto
  std::string html = {};   // a timeline as a page
  std::string svg = {};    // a timeline as a picture

  bool draws() const { return !html.empty() || !svg.empty(); }
  bool traces() const { return draws() || !trace.empty(); }
  bool silences() const { return json == "-"; }

  // One line for each timeline that was written.
  std::string show() const;

  // Does nothing if no JSON was requested.
  void write_json(const nlohmann::ordered_json& figures) const;
};

void add_options(Options& options, OutputFiles& files);
void add_json_option(Options& options, OutputFiles& files);  // alone

// Another file that a verb reads or writes, with a description for messages; an empty path: none.
struct OtherFile {
  const char* what;
  std::string path;
};

// Refuses files that would overwrite one another or one of the others.
void check_distinct(const OutputFiles& files, const std::vector<OtherFile>& others = {});
void check_writable(const OutputFiles& files);

// The file appears complete or not at all.
void write_file(const std::string& path, const std::string& text);

}  // namespace plait::cli
