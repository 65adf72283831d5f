#include "link_trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <thread>
#include <utility>

#include "base/check.h"
#include "plait/collectives.h"
#include "plait/mailbox.h"

namespace plait::bench {
namespace {

// CPU time of this thread. getrusage() reports it too, but in ticks of the kernel, which may be
// longer than the waits measured here.
Nanoseconds processor_time() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * base::kSecond + time.tv_nsec;
}

// The arithmetic of one tile, about 20 µs. It uses registers only, so only processor time
// distinguishes it from the same work done alone.
class Work {
 public:
  void tile() {
    for (int i = 0; i < 5000; ++i) value_ = value_ * 0.999 + 0.5;
    ++tiles_;
    asm volatile("" : "+x"(value_));  // the result counts as used
  }
  int take_tiles() { return std::exchange(tiles_, 0); }

  // Nanoseconds per tile without other work.
  double alone(int tiles) {
    const Nanoseconds begin = base::now();
    for (int i = 0; i < tiles; ++i) tile();
    const double time = static_cast<double>(base::now() - begin) / tiles;
    take_tiles();
    return time;
  }

 private:
  double value_ = 1;
  int tiles_ = 0;
};

// The receiver's measurements of one transfer.
struct Observation {
  double arrival;    // nanoseconds after the chunk was posted
  double processor;  // its CPU time, as a share of the time it waited
  double useful;
  bool disturbed;
};

class Transfers {
 public:
  Transfers(Communicator& comm, std::size_t bytes, Waiting waiting)
      : comm_(comm),
        mailbox_(comm.make_mailbox({.slots = 1, .slot_bytes = bytes})),
        buffers_(bytes, std::byte{0x3C}),
        waiting_(waiting) {}

  // Rank 1's observation; the result of other ranks has no meaning.
  Observation transfer() {
    ++call_;
    double tile = 0;
    if (waiting_ == Waiting::working) {
      // The other ranks are idle, as they will be while the chunk is under way, because a core may
      // be slower if its neighbour is busy.
      if (comm_.rank() == 1) {
        tile = work_.alone(16);
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    }
    barrier(comm_);
    if (comm_.rank() == 0) post();
    return comm_.rank() == 1 ? receive(tile) : Observation{};
  }

 private:
  void post() {
    std::byte* out = mailbox_->outbox(1, 0);
    std::memcpy(out, buffers_.data(), buffers_.size());
    const Nanoseconds posted = base::now();
    std::memcpy(out, &posted, sizeof(posted));
    mailbox_->post(1, 0, {.call = call_}, buffers_.size());
  }

  Observation receive(double tile) {
    const long preempted = switches().forced;
    const Nanoseconds worked = processor_time();
    const Nanoseconds begin = base::now();
    if (waiting_ == Waiting::blocked) {
      mailbox_->wait_arrived(0, 0, {.call = call_});
    } else {
      while (!mailbox_->arrived(0, 0, {.call = call_})) {
        work_.tile();
        mailbox_->progress();
      }
    }
    const Nanoseconds end = base::now();
    const Nanoseconds work = processor_time() - worked;
    const bool disturbed = switches().forced != preempted;
    Nanoseconds posted = 0;
    std::memcpy(&posted, mailbox_->inbox(0, 0), sizeof(posted));
    check(mailbox_->inbox(0, 0));
    mailbox_->release(0, 0);
    const auto waited = static_cast<double>(end - begin);
    return {.arrival = static_cast<double>(end - posted),
            .processor = static_cast<double>(work) / waited,
            .useful = work_.take_tiles() * tile / waited,
            .disturbed = disturbed};
  }

  void check(const std::byte* chunk) const {
    constexpr std::size_t kStamp = sizeof(Nanoseconds);
    if (std::memcmp(chunk + kStamp, buffers_.data() + kStamp, buffers_.size() - kStamp) != 0)
      base::fail(Code::mismatch, "a chunk of ", buffers_.size(), " bytes arrived damaged");
  }

  Communicator& comm_;
  std::unique_ptr<Mailbox> mailbox_;
  std::vector<std::byte> buffers_;
  Work work_;
  Waiting waiting_;
  std::uint32_t call_ = 0;
};

// Sends rank 1's value to all ranks.
double of_receiver(Communicator& comm, double value) {
  return largest(comm, comm.rank() == 1 ? value : -std::numeric_limits<double>::infinity());
}

Observation of_receiver(Communicator& comm, const Observation& seen) {
  return {.arrival = of_receiver(comm, seen.arrival),
          .processor = of_receiver(comm, seen.processor),
          .useful = of_receiver(comm, seen.useful),
          .disturbed = of_receiver(comm, seen.disturbed ? 1 : 0) != 0};
}

struct Observations {
  std::vector<Observation> quiet;
  std::vector<Observation> disturbed;

  const std::vector<Observation>& best() const { return quiet.empty() ? disturbed : quiet; }
};

Observations observe(Communicator& comm, Transfers& transfers, const Effort& effort) {
  Observations seen;
  const Nanoseconds begin = base::now();
  do {
    const Observation one = of_receiver(comm, transfers.transfer());
    (one.disturbed ? seen.disturbed : seen.quiet).push_back(one);
  } while (static_cast<int>(seen.quiet.size()) < effort.repetitions &&
           largest(comm, static_cast<double>(base::now() - begin)) <
               static_cast<double>(effort.patience));
  return seen;
}

template <class Value>
Summary summarize_each(const std::vector<Observation>& seen, Value value) {
  std::vector<double> values(seen.size());
  std::transform(seen.begin(), seen.end(), values.begin(), value);
  return summarize(std::move(values));
}

}  // namespace

LinkTrial try_link(Communicator& comm, std::size_t bytes, Waiting waiting, const Effort& effort) {
  const auto link = comm.link();
  PLAIT_CHECK(link, "try_link: the communicator has no link");
  PLAIT_CHECK(bytes >= sizeof(Nanoseconds), "link: ", bytes, " bytes have no room for a time");
  LinkTrial trial = {.link = describe(*link),
                     .waiting = waiting == Waiting::blocked ? "waiting" : "working meanwhile",
                     .bytes = bytes};
  trial.ideal = static_cast<double>(link->latency_ns) +
                static_cast<double>(bytes) * 1e9 / link->bytes_per_second;
  Transfers transfers(comm, bytes, waiting);
  for (int warm_up = 0; warm_up < 3; ++warm_up) transfers.transfer();
  const Observations all = observe(comm, transfers, effort);
  const auto& seen = all.best();
  trial.measured = summarize_each(seen, [](const Observation& one) { return one.arrival; });
  trial.measured.kept = static_cast<int>(all.quiet.size());
  trial.measured.tried = static_cast<int>(all.quiet.size() + all.disturbed.size());
  trial.error = summarize_each(seen, [&](const Observation& one) {
                  return std::abs(one.arrival - trial.ideal) / trial.ideal;
                }).median;
  trial.processor =
      summarize_each(seen, [](const Observation& one) { return one.processor; }).median;
  if (waiting == Waiting::working)
    trial.useful = summarize_each(seen, [](const Observation& one) { return one.useful; }).median;
  return trial;
}

}  // namespace plait::bench
