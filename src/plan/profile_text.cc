// Reads and writes profiles as text, one line per figure, so that two can be compared by eye.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "base/text.h"
#include "plan/profile.h"

namespace plait::plan {
namespace {

constexpr std::string_view kHead = "plait profile 2";
constexpr std::string_view kEnd = "end";

// Figures outside of these bounds belong to no machine, and predictions from them might overflow.
struct Bounds {
  double least, most;
};
constexpr Bounds kRates = {.least = 1e-4, .most = 1e9};  // bytes or operations in a nanosecond
constexpr Bounds kTimes = {.least = 0, .most = 1e9};     // nanoseconds
constexpr Bounds kTimesAsLong = {.least = 1e-3, .most = 100};

struct Figure {
  std::string_view name;
  double MachineProfile::* at;
  Bounds bounds;
};

constexpr std::array<Figure, 7> kFigures = {
    {{"copy", &MachineProfile::copy, kRates},
     {"sum", &MachineProfile::sum, kRates},
     {"chunk", &MachineProfile::chunk, kTimes},
     {"start", &MachineProfile::start, kTimes},
     {"narrow", &MachineProfile::narrow, {.least = 0, .most = 10}},
     {"beside", &MachineProfile::beside, {.least = 0, .most = 100}},
     {"uncertainty", &MachineProfile::uncertainty, {.least = 0, .most = 1}}}};

// Four digits; more would differ from run to run.
std::string digits(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

// The words of one line.
class Line {
 public:
  Line(std::string_view text, int number) : text_(text), number_(number) {
    for (const std::string_view word : base::split(text, ' ')) {
      if (!word.empty()) words_.push_back(word);
    }
  }

  bool empty() const { return words_.empty(); }
  std::size_t words() const { return words_.size(); }
  std::string_view word(std::size_t i) const { return words_[i]; }

  void refuse_unless(bool holds) const {
    PLAIT_CHECK(holds, "profile, line ", number_, ": \"", text_, "\" cannot be read");
  }

  double number(std::size_t i, const Bounds& bounds) const {
    refuse_unless(i < words_.size());
    const double value = base::parse_number(words_[i]).value_or(-1);
    refuse_unless(value >= bounds.least && value <= bounds.most);
    return value;
  }

  std::int64_t whole(std::size_t i, std::int64_t most) const {
    refuse_unless(i < words_.size());
    const std::int64_t value = base::parse_int(words_[i]).value_or(0);
    refuse_unless(value >= 1 && value <= most);
    return value;
  }

 private:
  std::string_view text_;
  int number_;
  std::vector<std::string_view> words_;
};

void read_line(const Line& line, MachineProfile& profile) {
  constexpr std::int64_t kMost = 1 << 20;
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
  const std::string_view what = line.word(0);
  if (what == "product") {
    line.refuse_unless(line.words() == 4);
    profile.products.push_back({.kind = std::string(line.word(1)),
                                .rows = line.whole(2, kMost),
                                .flops_per_ns = line.number(3, kRates)});
    return;
  }
  if (what == "transport") {
    line.refuse_unless(line.words() == 4);
    profile.transports.push_back(
        {.name = std::string(line.word(1)),
         .latency = line.number(2, kTimes),
         .bytes_per_ns = line.word(3) == "0" ? 0 : line.number(3, kRates)});
    return;
  }
  if (what == "kept") {
    line.refuse_unless(line.words() == 3);
    profile.kept.push_back(
        {.bytes = line.whole(1, kMostBytes), .times = line.number(2, kTimesAsLong)});
    return;
  }
  line.refuse_unless(line.words() == 2);
  if (what == "ranks") {
    profile.ranks = static_cast<int>(line.whole(1, kMost));
  } else if (what == "threads") {
    profile.threads = static_cast<int>(line.whole(1, kMost));
  } else if (what == "hosts") {
    profile.hosts = static_cast<int>(line.whole(1, kMost));
  } else {
    const auto* const figure = std::find_if(kFigures.begin(), kFigures.end(),
                                            [&](const Figure& one) { return one.name == what; });
    line.refuse_unless(figure != kFigures.end());
    profile.*figure->at = line.number(1, figure->bounds);
  }
}

}  // namespace

std::string text_of(const MachineProfile& profile) {
  std::string text = base::sentence(kHead, "\nmachine ", profile.machine, "\nranks ", profile.ranks,
                                    "\nthreads ", profile.threads, "\nhosts ", profile.hosts, '\n');
  for (const Figure& figure : kFigures)
    text += base::sentence(figure.name, ' ', digits(profile.*figure.at), '\n');
  auto products = profile.products;
  std::sort(products.begin(), products.end(), [](const ProductRate& a, const ProductRate& b) {
    return std::tie(a.kind, a.rows) < std::tie(b.kind, b.rows);
  });
  for (const ProductRate& one : products)
    text +=
        base::sentence("product ", one.kind, ' ', one.rows, ' ', digits(one.flops_per_ns), '\n');
  auto kept = profile.kept;
  std::sort(kept.begin(), kept.end(),
            [](const KeptSums& a, const KeptSums& b) { return a.bytes < b.bytes; });
  for (const KeptSums& one : kept)
    text += base::sentence("kept ", one.bytes, ' ', digits(one.times), '\n');
  auto transports = profile.transports;
  std::sort(transports.begin(), transports.end(),
            [](const TransportFigures& a, const TransportFigures& b) { return a.name < b.name; });
  for (const TransportFigures& one : transports)
    text += base::sentence("transport ", one.name, ' ', digits(one.latency), ' ',
                           digits(one.bytes_per_ns), '\n');
  return text + std::string(kEnd) + '\n';
}

MachineProfile parse_profile(std::string_view text) {
  MachineProfile profile;
  auto lines = base::split(text, '\n');
  PLAIT_CHECK(lines.front() == kHead, "profile: the first line must be \"", kHead, "\", not \"",
              lines.front().substr(0, 40), '"');
  PLAIT_CHECK(lines.size() > 2 && lines.back().empty() && lines[lines.size() - 2] == kEnd,
              "profile: it is incomplete: the last line must be \"", kEnd, '"');
  lines.resize(lines.size() - 2);
  constexpr std::string_view kMachine = "machine ";
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].starts_with(kMachine)) {
      profile.machine = lines[i].substr(kMachine.size());
      continue;
    }
    const Line line(lines[i], static_cast<int>(i) + 1);
    if (!line.empty()) read_line(line, profile);
  }
  PLAIT_CHECK(!profile.machine.empty(), "profile: the line \"machine ...\" is missing");
  PLAIT_CHECK(!profile.products.empty(), "profile: a line \"product ...\" is missing");
  for (const Figure& figure : kFigures) {
    const auto times = std::count_if(lines.begin(), lines.end(), [&](std::string_view line) {
      return line.substr(0, line.find(' ')) == figure.name;
    });
    PLAIT_CHECK(times == 1, "profile: ", times, " lines give ", figure.name, "; one must");
  }
  return profile;
}

}  // namespace plait::plan
