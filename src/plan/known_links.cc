#include "plan/known_links.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace plait::plan {
namespace {

constexpr std::string_view kFirstLine = "plait links 1";
constexpr std::string_view kBetween = " | ";
constexpr std::size_t kFiguresOfALink = 3;

// How far apart two undisturbed measurements of one network may be, as ratios.
constexpr double kSameRate = 1.25;
constexpr double kSameLatency = 2;

// How many times as fast as it is a network may look that saved up a burst.
constexpr double kMostBurst = 2;

}  // namespace

std::string links_path(const std::string& cache_path) { return cache_path + ".links"; }

KnownLinks parse_links(std::string_view text) {
  KnownLinks links;
  const auto lines = base::split(text, '\n');
  if (lines.front() != kFirstLine) return links;
  for (const std::string_view line : lines) {
    const std::size_t end = line.find(kBetween);
    if (end == std::string_view::npos) continue;
    std::vector<double> figures;
    for (const std::string_view word : base::split(line.substr(end), ' ')) {
      if (word.empty() || word == "|") continue;
      figures.push_back(base::parse_number(word).value_or(-1));
    }
    const bool are_good = std::all_of(figures.begin(), figures.end(),
                                      [](double one) { return std::isfinite(one) && one >= 0; });
    if (figures.size() != kFiguresOfALink || !are_good || figures[1] == 0) continue;
    links[std::string(line.substr(0, end))] = {
        .latency = figures[0], .bytes_per_ns = figures[1], .processor = figures[2]};
  }
  return links;
}

std::string text_of(const KnownLinks& links) {
  std::string text = base::sentence(kFirstLine, '\n');
  for (const auto& [name, link] : links) {
    text += base::sentence(name, kBetween, link.latency, kBetween, link.bytes_per_ns, kBetween,
                           link.processor, '\n');
  }
  return text;
}

std::string ends_of(const std::vector<std::string>& routes) {
  constexpr std::string_view kTo = " to ";
  std::vector<std::string> ends;
  for (const std::string& route : routes) {
    const std::string one = route.substr(0, route.find(';'));
    const bool is_listed = std::find(ends.begin(), ends.end(), one) != ends.end();
    if (!one.starts_with("shm") && !is_listed) ends.push_back(one);
  }
  std::string text;
  std::string from;
  for (const std::string& one : ends) {
    const bool goes_on = !from.empty() && one.starts_with(from);
    text += base::sentence(text.empty() ? "" : ", ", goes_on ? one.substr(from.size()) : one);
    const std::size_t to = one.find(kTo);
    from = to == std::string::npos ? std::string() : one.substr(0, to + kTo.size());
  }
  return text;
}

// Other programs make a network look slower. It looks faster where it saved up a burst while they
// had the processor, but then not by far.
TransportFigures add(KnownLinks& links, const std::string& name, const MeasuredLink& measured) {
  const auto [found, is_new] = links.try_emplace(name, measured.figures);
  TransportFigures& counts = found->second;
  const TransportFigures& now = measured.figures;
  if (is_new) return counts;
  const bool is_nearer = now.latency * kSameLatency < counts.latency;
  if (is_nearer || now.latency > counts.latency * kSameLatency * measured.latency_spread)
    counts.latency = now.latency;
  const double burst = std::min(measured.rate_spread, kMostBurst);
  const bool is_faster = now.bytes_per_ns > counts.bytes_per_ns * kSameRate * burst;
  const bool is_other =
      is_faster || now.bytes_per_ns * kSameRate * measured.rate_spread < counts.bytes_per_ns;
  if (is_other) counts.bytes_per_ns = now.bytes_per_ns;
  if (!measured.has_processor) return counts;
  if (is_other) {
    counts.processor = now.processor;
  } else if (measured.rate_spread <= kSameRate) {
    counts.processor = std::min(counts.processor, now.processor);
  }
  return counts;
}

}  // namespace plait::plan
