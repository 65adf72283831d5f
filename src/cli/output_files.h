// The files in which a verb leaves what it has found out, besides what it prints.
//
//   OutputFiles files;
//   add_options(options, files);     // --json, --trace, --html, --svg
//   ...
//   check(files);                    // before anything is measured
//   files.write_json(json);          // in the end
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace plait::cli {

class Options;

struct OutputFiles {
  std::string json = {};   // -: printed, and nothing else is
  std::string trace = {};  // a timeline for Perfetto
  std::string html = {};   // the same as a page
  std::string svg = {};    // and as a picture

  bool draws() const { return !html.empty() || !svg.empty(); }
  bool traces() const { return draws() || !trace.empty(); }
  bool silences() const { return json == "-"; }

  // Where timelines are, a line each.
  std::string show() const;

  // Where it was asked for.
  void write_json(const nlohmann::ordered_json& figures) const;
};

void add_options(Options& options, OutputFiles& files);

// What a verb reads or keeps, in words for a sentence; an empty path: there is none.
struct OtherFile {
  const char* what;
  std::string path;
};

// Refuses files of which one would be written over another, and files that can't be written.
void check_distinct(const OutputFiles& files, const std::vector<OtherFile>& others = {});
void check_writable(const OutputFiles& files);

// Appears complete or not at all.
void write_file(const std::string& path, const std::string& text);

}  // namespace plait::cli
