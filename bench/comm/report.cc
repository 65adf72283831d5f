#include "report.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "base/text.h"

namespace plait::bench {
namespace {

// Microseconds with at least three significant figures: 0.382, 7.21, 17.1, 1373
std::string microseconds(double nanoseconds) {
  const double us = nanoseconds / 1e3;
  if (us < 1) return fmt::format("{:.3f}", us);
  if (us < 100) return fmt::format("{:.2f}", us);
  return fmt::format("{:.0f}", us);
}

// A tilde marks a time for which all repetitions were disturbed by other programs.
std::string median_text(const Summary& times) {
  return fmt::format("{}{}", times.kept > 0 ? "" : "~", microseconds(times.median));
}

std::string size_text(std::size_t bytes) { return base::show_bytes(static_cast<double>(bytes)); }

double one_decimal(double value) { return std::round(value * 10) / 10; }

std::string percent(double part) { return fmt::format("{:.1f} %", part * 100); }

std::string processor_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date = {};
  ::gmtime_r(&now, &date);
  std::ostringstream text;
  text << std::put_time(&date, "%Y-%m-%d");
  return text.str();
}

// The most that a figure may be. They are goals for two ranks.
struct Bar {
  const char* what;
  std::size_t bytes;
  const char* of;
  double at_most;
};
constexpr Bar kBars[] = {{"mailbox, round trip", 64, "plait", 0.3},
                         {"all_reduce", 64 * 1024, "plait", 6},
                         {"all_reduce", 16 * 1024, "plait/MPI", 0.35},
                         {"all_reduce", 64 * 1024, "plait/MPI", 0.55},
                         {"all_reduce", 8 * 1024 * 1024, "plait/MPI", 0.6}};

// All times are medians in microseconds. bench/report.py says what a row is.
nlohmann::ordered_json to_json(const Race& race, const std::string& title) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < race.names.size(); ++i)
    values[race.names[i]] = race.times[i].median / 1e3;
  if (values.contains("MPI")) values["plait/MPI"] = race.times[0].median / race.times[1].median;
  nlohmann::ordered_json row = {
      {"table", title + ", us"},
      {"what", {{"operation", race.what}, {"size", size_text(race.bytes)}}},
      {"values", values}};
  for (const Bar& bar : kBars) {
    if (race.what == bar.what && race.bytes == bar.bytes && values.contains(bar.of))
      row["bar"] = {{"of", bar.of}, {"at most", bar.at_most}};
  }
  return row;
}

nlohmann::ordered_json to_json(const LinkTrial& trial) {
  nlohmann::ordered_json values = {{"ideal, us", trial.ideal / 1e3},
                                   {"measured, us", trial.measured.median / 1e3},
                                   {"least, us", trial.measured.min / 1e3},
                                   {"error, %", trial.error * 100},
                                   {"CPU time, %", trial.processor * 100}};
  if (trial.useful >= 0) values["work done, %"] = trial.useful * 100;
  return {{"table", trial.link},
          {"what", {{"the receiver is", trial.waiting}, {"size", size_text(trial.bytes)}}},
          {"values", values}};
}

}  // namespace

Machine this_machine() {
  utsname system = {};
  ::uname(&system);
  return {.processor = processor_name(),
          .processors = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
          .kernel = system.release,
          .compiler = __VERSION__};
}

double load() {
  double minute = 0;
  return ::getloadavg(&minute, 1) == 1 ? minute : -1;
}

Report::Report(std::string title, std::ostream& tables, bool markdown)
    : title_(std::move(title)), tables_(&tables), markdown_(markdown), load_before_(load()) {
  const Machine machine = this_machine();
  *tables_ << fmt::format("{}\n{}, {} processors; load {:.1f}; microseconds\n", title_,
                          machine.processor, machine.processors, load_before_);
}

void Report::begin_table(const std::string& name, const std::vector<std::string>& columns) {
  if (table_ == name) return;
  table_ = name;
  *tables_ << (markdown_ ? "\n## " : "\n") << name << "\n" << (markdown_ ? "\n" : "");
  print_row(columns);
  if (!markdown_) return;
  *tables_ << "|";
  for (std::size_t i = 0; i < columns.size(); ++i) *tables_ << "---:|";
  *tables_ << "\n";
}

void Report::print_row(const std::vector<std::string>& cells) {
  if (markdown_) *tables_ << "|";
  for (const std::string& cell : cells)
    *tables_ << (markdown_ ? fmt::format(" {} |", cell) : fmt::format("{:>12}", cell));
  *tables_ << std::endl;
}

void Report::add(const Race& race) {
  races_.push_back(race);
  std::vector<std::string> columns = {"size"};
  std::vector<std::string> cells = {size_text(race.bytes)};
  for (std::size_t i = 0; i < race.names.size(); ++i) {
    const Summary& times = race.times[i];
    columns.insert(columns.end(), {race.names[i], "min", "max"});
    cells.insert(cells.end(),
                 {median_text(times), microseconds(times.min), microseconds(times.max)});
  }
  if (race.names.size() == 2) {
    columns.emplace_back("ratio");
    cells.push_back(fmt::format("{:.2f}", race.times[0].median / race.times[1].median));
  }
  begin_table(race.what, columns);
  print_row(cells);
}

void Report::add(const LinkTrial& trial) {
  trials_.push_back(trial);
  begin_table(fmt::format("{}, {}", trial.link, trial.waiting),
              {"size", "ideal", "measured", "min", "max", "error", "CPU time", "work done"});
  print_row({size_text(trial.bytes), microseconds(trial.ideal), median_text(trial.measured),
             microseconds(trial.measured.min), microseconds(trial.measured.max),
             fmt::format("{:.2f} %", trial.error * 100), percent(trial.processor),
             trial.useful < 0 ? "-" : percent(trial.useful)});
}

std::string Report::json(const std::vector<std::string>& command) const {
  const Machine machine = this_machine();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Race& race : races_) rows.push_back(to_json(race, title_));
  for (const LinkTrial& trial : trials_) rows.push_back(to_json(trial));
  std::string words;
  for (const std::string& word : command) words += (words.empty() ? "" : " ") + word;
  const nlohmann::ordered_json json = {{"conditions",
                                        {{"date", today()},
                                         {"processor", machine.processor},
                                         {"processors", machine.processors},
                                         {"kernel", machine.kernel},
                                         {"gcc", machine.compiler},
                                         {"load before", one_decimal(load_before_)},
                                         {"load", one_decimal(load())},
                                         {"command", words}}},
                                       {"rows", rows}};
  return json.dump(1) + "\n";
}

}  // namespace plait::bench
