// The ranks of a conformance suite: threads, forked processes, or the ranks that mpirun started.
//
//   const RankMaker shm = {.name = "shm", .run = run_in_processes};
//   INSTANTIATE_TEST_SUITE_P(Shm, MailboxConformance, worlds_of(shm, {1, 2, 3, 5, 8}), case_name);
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized.h"
#include "plait/communicator.h"

namespace plait {

using Body = std::function<void(Communicator&)>;

// Runs a body on every rank of a new group. A failure on any rank fails the test.
class RunRanks {
 public:
  template <class Run>
  RunRanks(Run run) : run_(std::move(run)) {}  // NOLINT: functions are such
  void operator()(int world, const Body& body, const CommunicatorOptions& options = {}) const {
    run_(world, body, options);
  }

 private:
  std::function<void(int world, const Body& body, const CommunicatorOptions& options)> run_;
};

struct RankMaker {
  std::string name;
  RunRanks run;
  std::string link = {};    // an emulated link between the ranks
  bool sees_calls = true;   // ranks see one another's calls, not only chunks
  bool one_host = true;     // an emulated link needs that
  bool one_thread = false;  // all ranks take turns on one thread, so no other thread may be a rank
};

void run_as_threads(int world, const Body& body, const CommunicatorOptions& options = {});
void run_in_processes(int world, const Body& body, const CommunicatorOptions& options = {});
void run_over_tcp(int world, const Body& body, const CommunicatorOptions& options = {});
void run_over_ucx(int world, const Body& body, const CommunicatorOptions& options = {});
// Runs ranks over TCP as threads: the thread sanitizer sees no further than one process.
void run_threads_over_tcp(int world, const Body& body, const CommunicatorOptions& options = {});

// Runs ranks on simulated hosts, rank r on host `hosts[r]`, as processes.
RunRanks over_hosts(const std::vector<int>& hosts, const std::string& transport = "tcp");
// Runs ranks over TCP on such hosts as threads.
RunRanks threads_over_hosts(const std::vector<int>& hosts);

void run_under_mpi(int world, const Body& body, const CommunicatorOptions& options);

// How long the rank waits for another from here on. What came before it, connecting above all, has
// had the usual deadline, which is long enough for a busy machine.
void set_timeout(Communicator& comm, std::chrono::nanoseconds timeout);

// A job name that no other test uses.
std::string fresh_job();

CommunicatorOptions options_of(int rank, int world, const std::string& job,
                               const std::string& transport = "tcp");
CommunicatorOptions shm_options(int rank, int world, const std::string& job);

// An all-reduce of a one of each rank.
float sum_of_ones(Communicator& comm);
void poll_all_reduce(Communicator& comm);

// Forks `world` children, gives each its rank, and expects all of them to return without a failure
// within `seconds`. A child that does not is killed.
void fork_ranks(int world, const std::function<void(int rank)>& child, int seconds = 100);

struct RanksCase {
  RankMaker maker;
  int world;
};

inline void PrintTo(const RanksCase& one, std::ostream* out) {  // NOLINT: gtest looks for this name
  *out << one.maker.name << one.world;
}

// With the address sanitizer, at most three ranks where there are several numbers of them: more
// find no other errors of memory, and take their time.
inline auto worlds_of(const RankMaker& maker, const std::vector<int>& worlds) {
  std::vector<RanksCase> cases;
  cases.reserve(worlds.size());
  for (const int world : worlds) {
    const bool is_left_out = kIsAddressSanitized && world > 3 && world != worlds.front();
    if (!is_left_out) cases.push_back({maker, world});
  }
  return testing::ValuesIn(cases);
}

inline std::string case_name(const testing::TestParamInfo<RanksCase>& info) {
  return info.param.maker.name + std::to_string(info.param.world);
}

class RanksTest : public testing::TestWithParam<RanksCase> {
 protected:
  int world() const { return GetParam().world; }
  void run(const Body& body, CommunicatorOptions options = {}) const {
    const RankMaker& maker = GetParam().maker;
    if (!maker.link.empty()) options.link = parse_link(maker.link);
    maker.run(world(), body, options);
  }
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Expects an Error with this code on every rank, and returns it.
template <class Call>
Error expect_error(Code code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error;
  }
  ADD_FAILURE() << "no Error{" << name(code) << "} was thrown";
  return {code, ""};
}

// An Error that blames this rank, with a sentence that contains `part`.
template <class Call>
Error expect_error(Code code, int culprit, const Call& call) {
  Error error = expect_error(code, call);
  EXPECT_EQ(error.culprit(), culprit) << error.what();
  return error;
}
template <class Call>
Error expect_error(Code code, const std::string& part, const Call& call) {
  Error error = expect_error(code, call);
  EXPECT_TRUE(contains(error.what(), part)) << error.what();
  return error;
}
template <class Call>
Error expect_error(Code code, int culprit, const std::string& part, const Call& call) {
  Error error = expect_error(code, part, call);
  EXPECT_EQ(error.culprit(), culprit) << error.what();
  return error;
}

}  // namespace plait
