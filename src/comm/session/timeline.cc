#include "comm/session/timeline.h"

#include <array>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "comm/session/gather.h"
#include "comm/session/state.h"
#include "plait/timeline.h"

namespace plait {
namespace {

constexpr int kQuestions = 32;  // a quiet moment among them is all that is needed

std::int64_t time_in(const std::byte* chunk) {
  std::int64_t time = 0;
  std::memcpy(&time, chunk, sizeof(time));
  return time;
}

void post_time(Mailbox& mailbox, int peer, const Tag& tag) {
  std::byte* out = mailbox.outbox(peer, 0);
  const std::int64_t time = base::now();
  std::memcpy(out, &time, sizeof(time));
  mailbox.post(peer, 0, tag, sizeof(time));
}

std::int64_t take_time(Mailbox& mailbox, int peer, const Tag& tag) {
  mailbox.wait_arrived(peer, 0, tag);
  const std::int64_t time = time_in(mailbox.inbox(peer, 0));
  mailbox.release(peer, 0);
  return time;
}

void answer(Mailbox& mailbox, int peer) {
  for (std::uint32_t question = 0; question < kQuestions; ++question) {
    take_time(mailbox, peer, {.chunk = question});
    post_time(mailbox, peer, {.chunk = question});
  }
}

ClockOffset ask(Mailbox& mailbox) {
  std::array<ClockSample, kQuestions> samples;
  for (std::uint32_t question = 0; question < kQuestions; ++question) {
    ClockSample& sample = samples[question];
    sample.asked = base::now();
    post_time(mailbox, 0, {.chunk = question});
    sample.answered = take_time(mailbox, 0, {.chunk = question});
    sample.heard = base::now();
  }
  return estimate_clock_offset(samples);
}

}  // namespace

void align_clock(Trace& trace, Communicator& comm) {
  // Ranks of one host have one clock: nothing to estimate.
  if (comm.state().shares_clock()) {
    trace.set_clock_offset(0);
    return;
  }
  const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = sizeof(std::int64_t)});
  for (int peer = 1; peer < comm.world(); ++peer) {
    if (comm.rank() == 0) answer(*mailbox, peer);
    if (comm.rank() == peer) trace.add_clock_offset(ask(*mailbox));
    barrier(comm);  // one at a time: rank 0 answers at once
  }
}

std::vector<std::vector<std::byte>> comm::collect_packs(Trace& trace, Communicator& comm) {
  align_clock(trace, comm);
  const std::vector<std::byte> mine = trace.pack();
  const std::vector<std::size_t> sizes = comm::gather_values(mine.size(), comm);
  // Only rank 0 gathers the records: a rank sends nothing to the others.
  std::vector<std::size_t> send(sizes.size());
  send[0] = mine.size();
  std::vector<std::size_t> receive(sizes.size());
  if (comm.rank() == 0) receive = sizes;
  std::size_t total = 0;
  for (const std::size_t part : receive) total += part;
  std::vector<std::byte> all(total);
  all_to_all({mine.data(), mine.size(), Dtype::s8}, {all.data(), total, Dtype::s8}, comm,
             {.send = send, .receive = receive});
  std::vector<std::vector<std::byte>> packs;
  if (comm.rank() != 0) return packs;
  auto from = all.begin();
  for (const std::size_t part : receive) {
    const auto end = from + static_cast<std::ptrdiff_t>(part);
    packs.emplace_back(from, end);
    from = end;
  }
  return packs;
}

void write_timeline(const std::string& path, Trace& trace, Communicator& comm) {
  const std::vector<std::vector<std::byte>> packs = comm::collect_packs(trace, comm);
  if (comm.rank() == 0) write_json(path, packs);
}

}  // namespace plait
