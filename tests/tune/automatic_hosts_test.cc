// Automatic plans (plait/tune.h) of ranks on several hosts.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/milestones.h"
#include "comm/session/gather.h"
#include "conformance/descriptors.h"
#include "conformance/ranks.h"
#include "ops/problem.h"
#include "plait/tune.h"
#include "plan/cache.h"
#include "plan/known_links.h"
#include "plan/machine.h"
#include "tune/automatic_case.h"
#include "tune/network.h"
#include "tune/online.h"

namespace plait {
namespace {

// Three ranks on one host and one on another: all must ask for the plan of two hosts.
class UnevenHosts : public AutomaticPlans {
 protected:
  static PlanKey problem() {
    PlanKey key = AutomaticPlans::problem(4);
    key.hosts = 2;
    key.transport = "tcp";
    return key;
  }

  const RunRanks run_ = over_hosts({0, 0, 0, 1});
};

TEST_F(UnevenHosts, HaveThePlanThatWasMeasuredOverTheirNetwork) {
  run_(4, [&](Communicator& comm) {
    const std::string links = comm.rank() == 0 ? path() : std::string();
    PlanKey key = problem();
    key.link = tune::about(tune::known_network(comm, key.threads, links));
    plan::PlanCache cache(plan::machine_fingerprint());
    cache.add(key, {.plan = kOdd, .nanoseconds = 1, .serial = 2});
    key.link->latency_ns *= 100;
    cache.add(key, {.plan = parse_plan("fused chunk=64"), .nanoseconds = 1, .serial = 2});
    if (comm.rank() == 0) plan::save_cache(path(), cache);
    barrier(comm);
    const auto plans = automatic_plans(comm, {.cache = path()});
    const OpProblem one(Operator::matmul_all_reduce, 40, comm);
    Op op = prepare(one.desc(), comm, {.plans = plans.get()});
    EXPECT_EQ(op.plan(), kOdd);
    op.run(one.call());
    matmul_all_reduce(one.x.view, one.packed, one.out.view, comm, {.plans = plans.get()});
  });
}

TEST_F(UnevenHosts, FindOutWhatIsFastestAndKeepIt) {
  run_(4, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path(), .online = true});
    const ClearTimes clear(*plans);
    const OpProblem one(Operator::matmul_all_reduce, 40, comm);
    for (std::size_t call = 0; call < tune::Online::calls(5) + 1; ++call)
      matmul_all_reduce(one.x.view, one.packed, one.out.view, comm, {.plans = &clear});
  });
  const auto kept = plan::load_cache(path(), plan::machine_fingerprint());
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->entries().size(), 1U);
  PlanKey key = parse_plan_key(kept->entries().begin()->first);
  EXPECT_TRUE(key.link) << "plans of one network must not be those of another";
  key.link.reset();
  EXPECT_EQ(name(key), name(problem()));
}

// Every program between hosts gets this without tuning.
TEST_F(UnevenHosts, MeasureTheNetworkAndTryPlansWithoutBeingAsked) {
  run_(4, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path()});
    const PlanKey key = problem();
    const Plan first = *plans->next(key);
    EXPECT_EQ(first, parse_plan("serial"));
    plans->took(key, first, 10);
    EXPECT_NE(plans->next(key), first);
    const auto reason = plans->reason(key);
    ASSERT_TRUE(reason);
    EXPECT_EQ(reason->sentence, "plans are being tried");
    EXPECT_GT(reason->serial_ns, 0);
    const auto quiet = automatic_plans(comm, {.cache = path(), .online = false});
    EXPECT_EQ(quiet->next(key), quiet->find(key));
    EXPECT_FALSE(contains(quiet->reason(key)->sentence, "has not been measured"));
  });
  const auto links = plan::read_text(plan::links_path(path()));
  ASSERT_TRUE(links);
  const plan::KnownLinks known = plan::parse_links(*links);
  ASSERT_EQ(known.size(), 1U);
  EXPECT_TRUE(known.begin()->first.starts_with("4 ranks on 2 hosts, tcp: 127.0.0.1"))
      << known.begin()->first;
}

// One rank of each host stores plans. All ranks must try again together, also after a decision that
// only some have stored.
TEST_F(UnevenHosts, TryAgainTogetherWhereCallsTakeLonger) {
  run_(4, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path()});
    const PlanKey key = problem();
    std::set<std::string> followed;
    const auto call = [&](std::int64_t serial, std::int64_t others) {
      const Plan plan = *plans->next(key);
      const auto all = comm::gather_values(fingerprint(plan), comm);
      ASSERT_EQ(std::set<std::uint32_t>(all.begin(), all.end()).size(), 1U);
      followed.insert(name(plan));
      plans->took(key, plan, plan.schedule == Schedule::serial ? serial : others);
    };
    for (int i = 0; i < 60; ++i) call(1'000'000, 700'000);
    followed.clear();
    for (int i = 0; i < 10; ++i) call(1'000'000, 700'000);
    ASSERT_EQ(followed.size(), 1U) << "it is decided";
    ASSERT_FALSE(followed.contains("serial"));
    for (int i = 0; i < 600; ++i) call(1'000'000, 2'000'000);
    EXPECT_TRUE(followed.contains("serial")) << "others are tried again";
    EXPECT_EQ(plans->next(key), parse_plan("serial"));
  });
}

// The calls of an operator until its plan is known, over two hosts.
void try_plans(const OpProblem& one, Communicator& comm, const PlanSource& plans) {
  const ClearTimes clear(plans);
  for (std::size_t call = 0; call < tune::Online::calls(5); ++call)
    matmul_all_reduce(one.x.view, one.packed, one.out.view, comm, {.plans = &clear});
}

std::set<std::string> problems_in(const std::string& path) {
  std::set<std::string> problems;
  const auto kept = plan::load_cache(path, plan::machine_fingerprint());
  EXPECT_TRUE(kept) << path;
  if (!kept) return problems;
  for (const auto& [text, entry] : kept->entries()) {
    PlanKey key = parse_plan_key(text);
    EXPECT_TRUE(key.link) << text;
    key.link.reset();
    problems.insert(name(key));
  }
  return problems;
}

// Every host has a rank of each of two groups, which try different problems at once, and write the
// same file. Between their calls come those of the group that both are in.
TEST_F(AutomaticPlans, AreTriedInTwoGroupsOfTheSameHosts) {
  const auto problem_of = [](int world, std::int64_t m) {
    PlanKey key = problem(world);
    key.m = m;
    key.hosts = 2;
    key.transport = "tcp";
    return key;
  };
  over_hosts({0, 0, 1, 1})(4, [&](Communicator& whole) {
    Communicator part = *whole.split(whole.rank() % 2, whole.rank());
    ASSERT_EQ(part.world(), 2);
    const auto of_whole = automatic_plans(whole, {.cache = path()});
    const auto of_part = automatic_plans(part, {.cache = path()});
    const ClearTimes clear_whole(*of_whole);
    const ClearTimes clear_part(*of_part);
    const OpProblem all(Operator::matmul_all_reduce, 56, whole);
    const OpProblem few(Operator::matmul_all_reduce, whole.rank() % 2 == 0 ? 40 : 48, part);
    for (std::size_t call = 0; call < tune::Online::calls(5); ++call) {
      matmul_all_reduce(few.x.view, few.packed, few.out.view, part, {.plans = &clear_part});
      if (call % 2 == 0)
        matmul_all_reduce(all.x.view, all.packed, all.out.view, whole, {.plans = &clear_whole});
    }
    try_plans(all, whole, *of_whole);
    // Each group has decided for itself, all of its ranks alike.
    const auto agree = [](Communicator& comm, const PlanSource& plans, const PlanKey& key) {
      EXPECT_NE(plans.reason(key)->sentence, "plans are being tried");
      const auto chosen = comm::gather_values(fingerprint(*plans.find(key)), comm);
      EXPECT_EQ(std::set<std::uint32_t>(chosen.begin(), chosen.end()).size(), 1U);
    };
    agree(whole, *of_whole, problem_of(4, 56));
    agree(part, *of_part, problem_of(2, whole.rank() % 2 == 0 ? 40 : 48));
  });
  EXPECT_EQ(problems_in(path()),
            (std::set{name(problem_of(4, 56)), name(problem_of(2, 40)), name(problem_of(2, 48))}));
}

// Three named hosts, each with a file of its own, as programs with two of them have left it.
class ThreeHosts : public AutomaticPlans {
 protected:
  static PlanKey problem(std::int64_t m) {
    PlanKey key = AutomaticPlans::problem(3);
    key.m = m;
    key.hosts = 3;
    key.transport = "tcp";
    return key;
  }
  std::string path_of(const Communicator& comm) const { return path(std::to_string(comm.rank())); }

  const RunRanks run_ = over_hosts({0, 1, 2});
};

TEST_F(ThreeHosts, HaveThePlansOfAllThree) {
  const std::array<Plan, 3> plans = {parse_plan("pipelined parts=5"), kOdd, parse_plan("serial")};
  run_(3, [&](Communicator& comm) {
    const Link link = tune::about(tune::known_network(comm, problem(40).threads, path_of(comm)));
    const auto over_link = [&](std::int64_t m) {
      PlanKey key = problem(m);
      key.link = link;
      return key;
    };
    const int host = comm.rank();
    plan::PlanCache cache(plan::machine_fingerprint());
    const auto entry = [&](int of) {
      return plan::PlanCache::Entry{.plan = plans.at(of), .nanoseconds = 1, .serial = 2};
    };
    cache.add(over_link(40), entry(host));  // both have one, and they differ
    cache.add(over_link(40 + host), entry(0));
    if (host > 0) plan::save_cache(path_of(comm), cache);  // the first has no file
    barrier(comm);
    const auto found = automatic_plans(comm, {.cache = path_of(comm)});
    EXPECT_EQ(found->next(problem(40)), kOdd);
    EXPECT_EQ(found->next(problem(41)), plans[0]);
    EXPECT_EQ(found->next(problem(42)), plans[0]);
    try_plans(OpProblem(Operator::matmul_all_reduce, 48, comm), comm, *found);
  });
  // A host keeps its own plan of a problem, and learns the others.
  const std::set<std::string> all = {name(problem(48)), name(problem(40)), name(problem(41)),
                                     name(problem(42))};
  for (int host = 0; host < 3; ++host) {
    const auto kept = plan::load_cache(path(std::to_string(host)), plan::machine_fingerprint());
    ASSERT_TRUE(kept);
    std::set<std::string> problems;
    for (const auto& [text, entry] : kept->entries()) {
      PlanKey key = parse_plan_key(text);
      key.link.reset();
      problems.insert(name(key));
      if (key.m == 40) {
        EXPECT_EQ(entry.plan, host == 2 ? plans[2] : kOdd) << "host " << host;
      }
    }
    EXPECT_EQ(problems, all) << "host " << host;
  }
}

// Another rank comes to a collective only when this one has gone on after starting it.
class StartedBetweenHosts : public AutomaticPlans {
 protected:
  // All ranks make both; rank 1 starts when rank 0 has got past its own start.
  void start_first(Communicator& comm, Communicator& in, int start,
                   const std::function<void()>& call) {
    std::vector<float> data(kCount, 1.0F);
    if (comm.rank() == 1) {
      started_.await(0, start + 1);
      ASSERT_EQ(started_.reached(0), start + 1) << "rank 0 is kept in its start";
    }
    Pending pending = start_all_reduce({data.data(), kCount}, {data.data(), kCount}, in);
    if (comm.rank() == 0) started_.reach(0);
    call();
    pending.wait();
    EXPECT_EQ(data.back(), 2.0F);
  }

  // More than what is under way at a time.
  static constexpr std::size_t kCount = std::size_t{1} << 21;
  Milestones started_;
  const RunRanks run_ = over_hosts({0, 1});
};

TEST_F(StartedBetweenHosts, DoesNotWaitForOthersWhilePlansAreTried) {
  run_(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path()});
    const OpProblem one(Operator::matmul_all_reduce, 40, comm);
    for (int call = 0; call < static_cast<int>(tune::Online::calls(5)); ++call) {
      start_first(comm, comm, call, [&] {
        matmul_all_reduce(one.x.view, one.packed, one.out.view, comm, {.plans = plans.get()});
      });
    }
  });
}

TEST_F(StartedBetweenHosts, DoesNotWaitForOthersWhileTheLinkIsMeasured) {
  run_(2, [&](Communicator& comm) {
    Communicator other = *comm.split(0, comm.rank());
    start_first(comm, other, 0, [&] { automatic_plans(comm, {.cache = path()}); });
    // Rank 1 measures before it starts: what rank 0 has started there must not be waited for.
    std::vector<float> data(kCount, 1.0F);
    std::optional<Pending> pending;
    const auto start = [&] {
      pending.emplace(start_all_reduce({data.data(), kCount}, {data.data(), kCount}, other));
    };
    Communicator third = *comm.split(0, comm.rank());
    if (comm.rank() == 0) start();
    const auto plans = automatic_plans(third, {.cache = path()});
    if (comm.rank() == 1) start();
    pending->wait();
    EXPECT_EQ(data.back(), 2.0F);
  });
}

// Every set of options has its own source. The buffers of a measurement are some 20 MiB.
TEST_F(UnevenHosts, MeasureTheNetworkOnceForACommunicator) {
  run_(4, [&](Communicator& comm) {
    const auto sent_by = [&] {
      barrier(comm);
      const std::int64_t before = tcp_bytes_sent();
      const auto plans = automatic_plans(comm, {.cache = path()});
      barrier(comm);
      return tcp_bytes_sent() - before;
    };
    const std::int64_t first = sent_by();
    EXPECT_GT(first, 100'000);
    EXPECT_LT(sent_by(), first / 10);
  });
}

// The wire between hosts is as wide as the operands, unless another is asked for.
TEST_F(UnevenHosts, SendSumsInTheDtypeOfX) {
  run_(4, [&](Communicator& comm) {
    struct Asked final : PlanSource {
      std::optional<Plan> find(const PlanKey& key) const override {
        wire = key.wire;
        return std::nullopt;
      }
      mutable Dtype wire = kNoDtype;
    };
    const Asked asked;
    const OpProblem one(Operator::matmul_all_reduce, 40, comm);
    matmul_all_reduce(one.x.view, one.packed, one.out.view, comm,
                      {.wire = kAutomaticWire, .plans = &asked});
    EXPECT_EQ(asked.wire, one.x.view.dtype);
    matmul_all_reduce(one.x.view, one.packed, one.out.view, comm, {.plans = &asked});
    EXPECT_EQ(asked.wire, Dtype::f32);
  });
}

}  // namespace
}  // namespace plait
