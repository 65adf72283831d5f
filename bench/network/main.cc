// A rank on each of two hosts, which measures the network between them, or waits for something to
// happen to the other one. bench/network/measure.py starts it.
//
//   plait_bench_network transfers MEGABYTES ROUNDS   figures as JSON, by rank 0
//   plait_bench_network stream|idle                  when, and how, the other rank's loss is told
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "plait/collectives.h"
#include "plait/error.h"
#include "plait/mailbox.h"
#include "tune/agree.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;
using base::Nanoseconds;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

// About 0.2 ms of arithmetic in registers.
void compute() {
  double value = 1;
  for (int i = 0; i < 50000; ++i) value = value * 0.999 + 0.5;
  asm volatile("" : "+x"(value));  // the result counts as used
}

void compute(int pieces) {
  for (int i = 0; i < pieces; ++i) compute();
}

// Sends as many bytes to the other rank as it receives, in chunks.
class Exchange {
 public:
  Exchange(Communicator& comm, std::size_t chunk_bytes, std::size_t bytes)
      : comm_(comm),
        peer_(1 - comm.rank()),
        chunk_bytes_(chunk_bytes),
        chunks_(static_cast<std::uint32_t>(bytes / chunk_bytes)),
        mailbox_(comm.make_mailbox({.slots = kSlots, .slot_bytes = chunk_bytes})) {}

  double gigabytes() const { return 2e-9 * static_cast<double>(chunk_bytes_) * chunks_; }

  // Returns nanoseconds. Both exchange meanwhile, and compute so many pieces.
  double run(int pieces) {
    sent_ = received_ = 0;
    barrier(comm_);
    const Nanoseconds begin = base::now();
    for (int i = 0; i < pieces; ++i) {
      compute();
      move();
    }
    while (sent_ < chunks_ || received_ < chunks_) move();
    return tune::slowest(static_cast<double>(base::now() - begin), comm_);
  }

 private:
  static constexpr std::uint32_t kSlots = 4;

  void move() {
    while (sent_ < chunks_ && mailbox_->vacant(peer_, slot_of(sent_))) {
      std::memcpy(mailbox_->outbox(peer_, slot_of(sent_)), &sent_, sizeof(sent_));
      mailbox_->post(peer_, slot_of(sent_), {.chunk = sent_}, chunk_bytes_);
      ++sent_;
    }
    while (received_ < chunks_ &&
           mailbox_->arrived(peer_, slot_of(received_), {.chunk = received_})) {
      std::uint32_t number = 0;
      std::memcpy(&number, mailbox_->inbox(peer_, slot_of(received_)), sizeof(number));
      PLAIT_CHECK(number == received_, "chunk ", number, " came in the place of ", received_);
      mailbox_->release(peer_, slot_of(received_));
      ++received_;
    }
    mailbox_->progress();
  }

  static int slot_of(std::uint32_t chunk) { return static_cast<int>(chunk % kSlots); }

  Communicator& comm_;
  int peer_;
  std::size_t chunk_bytes_;
  std::uint32_t chunks_;
  std::unique_ptr<Mailbox> mailbox_;
  std::uint32_t sent_ = 0;
  std::uint32_t received_ = 0;
};

// Nanoseconds of a chunk there and back, the median of many. A rank answers before it releases what
// it has got, so that the credit is not waited for.
double round_trip(Communicator& comm) {
  constexpr std::uint32_t kTrips = 1000;
  constexpr std::size_t kBytes = 64;
  const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
  const int peer = 1 - comm.rank();
  const auto send = [&](std::uint32_t trip) {
    std::memset(mailbox->outbox(peer, 0), 1, kBytes);
    mailbox->post(peer, 0, {.chunk = trip}, kBytes);
  };
  std::vector<double> times;
  barrier(comm);
  if (comm.rank() == 0) send(0);
  Nanoseconds begin = base::now();
  for (std::uint32_t trip = 0; trip < kTrips; ++trip) {
    mailbox->wait_arrived(peer, 0, {.chunk = trip});
    const Nanoseconds end = base::now();
    times.push_back(static_cast<double>(end - begin));
    begin = end;
    if (comm.rank() == 1) send(trip);
    if (comm.rank() == 0 && trip + 1 < kTrips) send(trip + 1);
    mailbox->release(peer, 0);
  }
  std::nth_element(times.begin(), times.begin() + kTrips / 2, times.end());
  return times[kTrips / 2];
}

// Computing takes half as long again as the transfer, so what is not hidden is processor time.
double seconds_per_gigabyte(Exchange& exchange, double transfer, Communicator& comm) {
  constexpr int kSample = 50;
  compute(kSample);
  barrier(comm);
  Nanoseconds begin = base::now();
  compute(kSample);
  const double piece = tune::slowest(static_cast<double>(base::now() - begin), comm) / kSample;
  const int pieces = static_cast<int>(1.5 * transfer / piece) + 1;
  const auto alone = [&] {
    barrier(comm);
    begin = base::now();
    compute(pieces);
    return tune::slowest(static_cast<double>(base::now() - begin), comm);
  };
  const double before = alone();
  const double beside = exchange.run(pieces);
  return (beside - (before + alone()) / 2) * 1e-9 / exchange.gigabytes();
}

void transfers(Communicator& comm, std::size_t bytes, int rounds, double set_up) {
  Exchange small(comm, 256 * kKiB, bytes);
  Exchange large(comm, kMiB, bytes);
  Json found = {{"transport", comm.transport()}, {"set_up_ns", tune::slowest(set_up, comm)}};
  for (const char* name : {"256 KiB", "1 MiB", "round_trip_ns", "processor_s_per_gb"})
    found[name] = Json::array();
  const auto rate = [](const Exchange& exchange, double time) {
    return exchange.gigabytes() / 2 * 8e9 / time;  // Gbit/s each way
  };
  small.run(0);
  large.run(0);
  for (int round = 0; round < rounds; ++round) {
    const double time = small.run(0);
    found["256 KiB"].push_back(rate(small, time));
    found["1 MiB"].push_back(rate(large, large.run(0)));
    found["round_trip_ns"].push_back(round_trip(comm));
    found["processor_s_per_gb"].push_back(seconds_per_gigabyte(small, time, comm));
  }
  if (comm.rank() == 0) std::cout << found.dump() << std::endl;
}

// Until the other rank is lost. Both hosts are on this machine, so all processes have one clock.
void wait_for_loss(Communicator& comm, bool streams) try {
  std::cout << "ready" << std::endl;
  if (!streams && comm.rank() == 1) {
    for (;;) ::pause();
  }
  std::vector<float> sums(kMiB / sizeof(float), 1.0F);
  for (;;) {
    if (streams) {
      all_reduce({sums.data(), sums.size()}, comm);
    } else {
      barrier(comm);
    }
  }
} catch (const Error& error) {
  const Json told = {
      {"at_ns", base::now()}, {"culprit", error.culprit()}, {"sentence", error.what()}};
  std::cout << told.dump() << std::endl;
}

int run(const std::vector<std::string>& words) {
  const bool measures = words.size() == 3 && words[0] == "transfers";
  const bool waits = words.size() == 1 && (words[0] == "stream" || words[0] == "idle");
  if (!measures && !waits) {
    std::cerr << "usage: plait_bench_network transfers MEGABYTES ROUNDS | stream | idle\n";
    return 2;
  }
  const Nanoseconds begin = base::now();
  Communicator comm = Communicator::connect();
  const Nanoseconds connected = base::now();
  PLAIT_CHECK(comm.world() == 2, "there must be two ranks, not ", comm.world());
  // It begins when the later one of the two ranks has come.
  std::vector<std::int64_t> begins(2);
  all_gather({&begin, sizeof(begin), Dtype::s8}, {begins.data(), 2 * sizeof(begin), Dtype::s8},
             comm);
  if (waits) {
    wait_for_loss(comm, words[0] == "stream");
  } else {
    transfers(comm, std::stoul(words[1]) * kMiB, std::stoi(words[2]),
              static_cast<double>(connected - std::max(begins[0], begins[1])));
  }
  return 0;
}

}  // namespace
}  // namespace plait::bench

int main(int argc, char** argv) {
  try {
    return plait::bench::run({argv + std::min(argc, 1), argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "plait_bench_network: " << error.what() << std::endl;
    return 1;
  }
}
