#include "comm/meet/exit_probe.h"

#include <algorithm>

#include "plait/error.h"

namespace plait::comm::tcp {
namespace {

constexpr base::Nanoseconds kBetweenProbes = 200 * base::kMillisecond;

// A rank that has closed its connection calls again within less than this time, even if it first
// tries one address in vain.
constexpr base::Nanoseconds kUntilCertain = 1500 * base::kMillisecond;

}  // namespace

void ExitProbe::note(int rank, bool has_ended) {
  base::Nanoseconds& since = ended_at_[rank];
  if (!has_ended) {
    since = 0;
  } else if (since == 0) {
    since = base::now();
  }
}

void ExitProbe::probe(const std::vector<int>& awaited, const Identity& self,
                      TimeoutHints& hints) try {
  const base::Nanoseconds now = base::now();
  const bool is_awaited = std::find(awaited.begin(), awaited.end(), called_) != awaited.end();
  if (call_ && !is_awaited) call_.reset();  // the rank has called
  if (call_ && call_->is_over()) {
    note(called_, call_->is_refused());
    call_.reset();
  }
  if (!call_ && !awaited.empty() && now - called_at_ >= kBetweenProbes) {
    called_ = next_after(awaited);
    called_at_ = now;
    call_.emplace(called_, addresses_of_(called_), OutgoingHandshake::At::own_address_as_probe);
  }
  if (!call_) return;
  if (call_->has_socket()) {
    call_->advance(self, hints);
  } else {
    call_->begin();
  }
} catch (const Error&) {  // out of file descriptors
  call_.reset();
}

// One refusal proves little, so a rank that seems to have ended is asked again, before others.
int ExitProbe::next_after(const std::vector<int>& awaited) const {
  const auto doubted = std::find_if(awaited.begin(), awaited.end(),
                                    [this](int rank) { return ended_at_[rank] != 0; });
  if (doubted != awaited.end()) return *doubted;
  const auto next = std::upper_bound(awaited.begin(), awaited.end(), called_);
  return next == awaited.end() ? awaited.front() : *next;
}

std::optional<int> ExitProbe::find_ended() const {
  std::optional<int> first;
  for (int rank = 0; rank < static_cast<int>(ended_at_.size()); ++rank) {
    if (ended_at_[rank] != 0 && (!first || ended_at_[rank] < ended_at_[*first])) first = rank;
  }
  if (first && base::now() - ended_at_[*first] < kUntilCertain) return std::nullopt;
  return first;
}

}  // namespace plait::comm::tcp
