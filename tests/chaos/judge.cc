#include "chaos/judge.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace plait::chaos {
namespace {

using base::Nanoseconds;

constexpr Nanoseconds kPromise = 2 * base::kSecond;

// A rank that stops in one group, or leaves it, delays the ranks that wait for it there. In other
// groups these ranks are then late or leave too, and are blamed, because the reason is not known
// there.
bool is_echo(const Scene& scene, const Report& report, const std::vector<Report>& all) {
  // A killed rank is missed in all groups at once; the others leave the groups, or wait in them.
  return scene.loss != Loss::kill && std::any_of(all.begin(), all.end(), [&](const Report& one) {
           const bool before = report.code == Code::timeout || one.at <= report.at;
           return one.rank == report.culprit && one.group != report.group && before;
         });
}

// All ranks of a group report what the first one noticed, in the call in which it was. If all were
// in an operator, so was the first.
bool says_where(const Report& report, const std::vector<Report>& all) {
  const std::string_view sentence = report.sentence.data();
  // If a rank noticed a loss while the last of the others joined, all hear of it in the group's
  // first call.
  if (sentence.starts_with("split: ") && sentence.find(" to join") != sentence.npos) return true;
  bool named = false;
  for (const Report& one : all) {
    if (one.group != report.group) continue;
    if (!one.op) return true;
    named |= sentence.starts_with(name(*one.op));
  }
  return named && sentence.find(" chunk ") != std::string_view::npos;
}

bool fits(const Scene& scene, const Ending& ending, Code code) {
  // A rank that died before it arrived looks like one that is late.
  if (!ending.connected) return code == Code::timeout || code == Code::peer_lost;
  return code == (scene.loss == Loss::stop ? Code::timeout : Code::peer_lost);
}

}  // namespace

Nanoseconds patience(const Scene& scene, const Ending& ending) {
  const bool by_timeout = scene.loss == Loss::stop || !ending.connected;
  return kPromise + (by_timeout ? scene.timeout : 0);
}

std::string complaint(const Scene& scene, const Ending& ending, const Report& report,
                      const std::vector<Report>& all) {
  const auto says = [&](const auto&... what) {
    return base::sentence("rank ", report.rank, ' ', what..., ": ", name(report.code), ", culprit ",
                          report.culprit, ", after ",
                          (report.at - ending.gone) / base::kMillisecond,
                          " ms: ", report.sentence.data());
  };
  if (report.surprising) return says("failed otherwise");
  if (report.at < ending.gone) return says("complained before anything had happened");
  if (report.at - ending.gone > patience(scene, ending)) return says("noticed too late");
  if (report.culprit != scene.victim && is_echo(scene, report, all)) return {};
  if (report.culprit != scene.victim) return says("blamed another than rank ", scene.victim);
  if (!fits(scene, ending, report.code)) return says("gave another reason");
  if (!report.names) return says("did not say who");
  if (!says_where(report, all)) return says("did not say in which operator, or at which chunk");
  return {};
}

}  // namespace plait::chaos
