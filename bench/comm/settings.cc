#include "settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "base/atomic_file.h"
#include "base/text.h"

namespace plait::bench {
namespace {

void add_rank_options(CLI::App& app, Settings& settings) {
  app.add_option("-n,--ranks", settings.ranks, "number of ranks [2]")
      ->check(CLI::Range(2, 64))
      ->option_text("N");
  app.add_option("-t,--transport", settings.transport, "shm (processes) or threads [shm]")
      ->check(CLI::IsMember({"shm", "threads"}))
      ->option_text("NAME");
  app.add_option("--link", settings.link, "emulated link of the section link [25gbit,5us]")
      ->option_text("LINK");
}

void add_options(CLI::App& app, const Program& program, Settings& settings) {
  app.add_option("--sizes", settings.sizes, "sizes in bytes, such as 64,64KiB,8MiB")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->option_text("LIST");
  app.add_option("--only", settings.only, "run only these sections")
      ->delimiter(',')
      ->check(CLI::IsMember(program.sections))
      ->option_text("LIST");
  app.add_option("--repetitions", settings.effort.repetitions,
                 "undisturbed repetitions of each contender [41]")
      ->check(CLI::Range(1, 100000))
      ->option_text("N");
  app.add_flag("--quick", settings.quick, "make fewer and shorter repetitions, to try the program");
  app.add_option("--json", settings.json, "also write all results to FILE; -: to standard output")
      ->option_text("FILE");
}

}  // namespace

bool Settings::wants(const std::string& name) const {
  return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
}

const std::vector<std::size_t>& Settings::sizes_or(const std::vector<std::size_t>& own) const {
  return sizes.empty() ? own : sizes;
}

std::ostream& Settings::tables() const { return json == "-" ? std::cerr : std::cout; }

std::optional<int> read_settings(const Program& program, int argc, char** argv,
                                 Settings& settings) {
  settings.command.assign(argv, argv + argc);
  CLI::App app(program.purpose, program.name);
  app.footer(program.examples);
  app.set_help_flag("-h,--help", "print this page");
  if (program.starts_ranks) add_rank_options(app, settings);
  add_options(app, program, settings);
  try {
    app.parse(argc, argv);
    parse_link(settings.link);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << program.name << ": " << error.what() << " (--help lists the options)\n";
    return 2;
  }
  if (settings.quick) {
    settings.effort.repetitions = std::min(settings.effort.repetitions, 9);
    settings.effort.lasting = 300 * base::kMicrosecond;
    settings.effort.patience = 1 * base::kSecond;
  }
  return std::nullopt;
}

void write_json(const Report& report, const Settings& settings) {
  if (settings.json.empty()) return;
  const std::string text = report.json(settings.command);
  if (settings.json == "-") {
    std::cout << text << std::flush;
    return;
  }
  base::AtomicFile file(settings.json);
  file.append(text);
  file.commit();
}

int explain(const std::exception& error, const std::string& program) {
  std::cerr << program << ": " << error.what() << std::endl;
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known == nullptr) return 1;
  if (known->code() == Code::invalid_argument) return 2;
  return known->code() == Code::peer_lost || known->code() == Code::timeout ? 3 : 1;
}

}  // namespace plait::bench
