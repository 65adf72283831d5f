// Automatic plans (plait/tune.h): their origin, and the agreement of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "conformance/ranks.h"
#include "ops/problem.h"
#include "plait/tune.h"
#include "plan/cache.h"
#include "plan/families.h"
#include "plan/machine.h"
#include "tune/automatic_case.h"
#include "tune/online.h"

namespace plait {
namespace {

TEST_F(AutomaticPlans, AreThoseThatWereMeasured) {
  plan::save_cache(path(), cache_with(kOdd, 2));
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path()});
    const OpProblem one(Operator::matmul_all_reduce, 40, comm);
    const Op op = prepare(one.desc(), comm, {.plans = plans.get()});
    EXPECT_EQ(op.plan(), kOdd);
    const Op other = prepare(one.desc(), comm, {.plans = plans.get(), .backend = "reference"});
    EXPECT_NE(other.plan(), kOdd) << "it was measured with another backend";
    matmul_all_reduce(one.x.view, one.packed, one.out.view, comm, {.plans = plans.get()});
  });
}

TEST_F(AutomaticPlans, OfCallsThatAreNoOperatorsAreMeasuredOrFused) {
  for (const plan::FamilyCall& call : plan::family_calls()) {
    PlanKey key =
        parse_plan_key("m=40 n=200 k=96 transport=threads columns=48 op=" + std::string(call.name));
    EXPECT_EQ(key.family, call.family);
    plan::PlanCache cache(plan::machine_fingerprint());
    key.threads = base::thread_count(0);
    const Plan serial = parse_plan("serial");
    cache.add(key, {.plan = serial, .nanoseconds = 1, .serial = 1});
    plan::save_cache(path(std::string(call.name)), cache);
    run_as_threads(2, [&](Communicator& comm) {
      const auto plans = automatic_plans(comm, {.cache = path(std::string(call.name))});
      PlanKey asked = key;
      asked.threads = 0;  // as many as there are
      EXPECT_EQ(plans->find(asked), serial);
      EXPECT_TRUE(plans->reason(asked)->is_measured);
      ++asked.columns;
      EXPECT_EQ(plans->find(asked), parse_plan("fused"));
    });
  }
}

TEST_F(AutomaticPlans, AreTheModelsWhereNothingWasMeasured) {
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path("nothing")});
    PlanKey key = problem(2, 0);
    key.m = 2048;
    key.n = key.k = 8192;
    EXPECT_EQ(plans->find(key), parse_plan("serial"));
    key.link = parse_link("1gbit,5us");
    const Plan chosen = *plans->find(key);
    EXPECT_NE(chosen.schedule, Schedule::serial);
    const plan::CostModel model(plan::built_in_profile());
    key.threads = base::thread_count(0);
    EXPECT_EQ(chosen, model.choose(key));
  });
}

TEST_F(AutomaticPlans, AreThoseOfTheRanksThatHaveSome) {
  plan::save_cache(path(), cache_with(kOdd, 3));
  plan::save_cache(path("empty"), plan::PlanCache(plan::machine_fingerprint()));
  run_as_threads(3, [&](Communicator& comm) {
    const std::array mine = {path("nothing"), path(), path("empty")};
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto plans = automatic_plans(comm, {.cache = mine.at(rank)});
    EXPECT_EQ(plans->find(problem(3)), kOdd);
  });
}

// Programs of other hosts have tried other problems, or have found other plans.
TEST_F(AutomaticPlans, AreThoseOfAllRanksAndTheFirstOfTwoForAProblem) {
  plan::PlanCache one = cache_with(kOdd, 2);
  plan::PlanCache two = cache_with(parse_plan("serial"), 2);
  PlanKey other = problem(2);
  other.m = 80;
  two.add(other, {.plan = parse_plan("pipelined parts=5"), .nanoseconds = 1, .serial = 2});
  plan::save_cache(path("a"), one);
  plan::save_cache(path("b"), two);
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = comm.rank() == 0 ? path("a") : path("b")});
    EXPECT_EQ(plans->find(problem(2)), kOdd);
    EXPECT_EQ(plans->find(other), parse_plan("pipelined parts=5"));
  });
}

TEST_F(AutomaticPlans, AreRefusedOnEveryRankWhereOneCannotReadThem) {
  std::ofstream(path("broken")) << "plait plans 2\n";
  run_as_threads(2, [&](Communicator& comm) {
    const std::string mine = comm.rank() == 1 ? path("broken") : path("nothing");
    const Error error =
        expect_error(Code::invalid_argument, [&] { automatic_plans(comm, {.cache = mine}); });
    EXPECT_EQ(std::string(error.what()), "automatic_plans: rank 1: " + path("broken") +
                                             ": plans: the second line must name their machine: "
                                             "\"machine ...\"");
  });
}

// Calls until the fastest plan is known; with other columns than problem()'s.
void find_out(const PlanSource& plans, PlanKey key) {
  key.n += 64;
  for (std::size_t call = 0; call < tune::Online::calls(5); ++call) {
    const Plan plan = *plans.next(key);
    plans.took(key, plan, clear_time(plan));
  }
}

// Simulates another process that tunes while the program runs.
TEST_F(AutomaticPlans, FoundOutMeanwhileByOthersStay) {
  plan::save_cache(path(), cache_with(parse_plan("serial"), 2));
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path(), .online = true});
    if (comm.rank() == 0) plan::save_cache(path(), cache_with(kOdd, 2));
    barrier(comm);
    find_out(*plans, problem(2));
    barrier(comm);
    const auto kept = plan::load_cache(path(), plan::machine_fingerprint());
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->entries().size(), 2U);
    EXPECT_EQ(kept->find(problem(2)), kOdd);
  });
}

TEST_F(AutomaticPlans, ThatCannotBeKeptAreRemarkedOnOnce) {
  testing::internal::CaptureStderr();
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = "/proc/nothing/plans", .online = true});
    find_out(*plans, problem(2));
    find_out(*plans, problem(2, 3));
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("automatic_plans: new plans are not stored: ")) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// Simulates an update, or another machine with the same home directory, where the cache is the
// default one.
TEST_F(AutomaticPlans, LeaveAForeignFileAloneThatNobodyHasNamed) {
  std::filesystem::create_directories(path("plait"));
  plan::save_cache(path("plait/plans"), plan::PlanCache("another machine"));
  setenv("XDG_CACHE_HOME", path("").c_str(), 1);
  unsetenv("PLAIT_PLAN_CACHE");
  unsetenv("PLAIT_CONFIG");
  testing::internal::CaptureStderr();
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.online = true});
    EXPECT_TRUE(plans->find(problem(2)).has_value());
  });
  unsetenv("XDG_CACHE_HOME");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("automatic_plans: plans are neither read nor stored: ")) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_EQ(plan::read_text(path("plait/plans")), plan::PlanCache("another machine").text());
}

TEST_F(AutomaticPlans, GoByTheProfileBesideTheCache) {
  // Copies take very long, so that there is something to gain without a link too.
  plan::MachineProfile profile = plan::built_in_profile();
  profile.machine = plan::machine_fingerprint();
  profile.copy = 0.001;
  profile.sum = 1000;
  plan::write_text(plan::profile_path(path()), plan::text_of(profile));
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path()});
    PlanKey key = problem(2);
    key.op = Operator::matmul_reduce_scatter;
    key.m = key.n = key.k = 1024;
    EXPECT_EQ(plans->find(key)->schedule, Schedule::fused);
  });
  profile.machine = "another";
  plan::write_text(plan::profile_path(path()), plan::text_of(profile));
  run_as_threads(2, [&](Communicator& comm) {
    expect_error(Code::invalid_argument, [&] { automatic_plans(comm, {.cache = path()}); });
  });
}

TEST_F(AutomaticPlans, AreNotToldToOneRankToMeasure) {
  run_as_threads(2, [&](Communicator& comm) {
    expect_error(Code::mismatch, "different settings of tune_online",
                 [&] { automatic_plans(comm, {.cache = path(), .online = comm.rank() == 1}); });
  });
}

TEST_F(AutomaticPlans, MeasureWhereTheSettingsSaySo) {
  setenv("PLAIT_TUNE_ONLINE", "true", 1);
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path()});
    const Plan first = *plans->next(problem(2));
    plans->took(problem(2), first, 10);
    EXPECT_NE(plans->next(problem(2)), first);
    const auto quiet = automatic_plans(comm, {.cache = path(), .online = false});
    EXPECT_EQ(quiet->next(problem(2)), quiet->find(problem(2)));
  });
  unsetenv("PLAIT_TUNE_ONLINE");
}

// Each rank has a file of its own, as on several hosts, and only one of them had plans.
TEST_F(AutomaticPlans, AreTheSameInAllFilesAfterSomethingWasFoundOut) {
  plan::save_cache(path("1"), cache_with(kOdd, 2));
  for (int start = 0; start < 2; ++start) {
    run_as_threads(2, [&](Communicator& comm) {
      const std::string mine = path(std::to_string(comm.rank()));
      const auto plans = automatic_plans(comm, {.cache = mine, .online = true});
      EXPECT_EQ(plans->next(problem(2)), kOdd);
      find_out(*plans, problem(2));
    });
    const auto one = plan::load_cache(path("0"), plan::machine_fingerprint());
    const auto two = plan::load_cache(path("1"), plan::machine_fingerprint());
    ASSERT_TRUE(one && two);
    EXPECT_EQ(one->entries().size(), 2U);
    EXPECT_EQ(one->text(), two->text());
  }
}

TEST_F(AutomaticPlans, FindOutWhatIsFastestAndKeepIt) {
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path(), .online = true});
    const ClearTimes clear(*plans);
    const OpProblem one(Operator::matmul_all_reduce, 40, comm);
    for (std::size_t call = 0; call < tune::Online::calls(5) + 1; ++call) {
      matmul_all_reduce(one.x.view, one.packed, one.out.view, comm, {.plans = &clear});
    }
  });
  const auto kept = plan::load_cache(path(), plan::machine_fingerprint());
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->entries().size(), 1U);
  EXPECT_EQ(kept->entries().begin()->first, name(problem(2)));
}

// A trial's times are those of a problem with up to a quarter more rows.
TEST_F(AutomaticPlans, GiveAsAReasonTheTimesOfTheRowsInQuestion) {
  run_as_threads(2, [&](Communicator& comm) {
    const auto plans = automatic_plans(comm, {.cache = path(), .online = true});
    PlanKey key = problem(2);
    key.m = 520;
    ASSERT_EQ(tune::shared_problem(key).m, 640);
    const ClearTimes clear(*plans);
    for (std::size_t call = 0; call < tune::Online::calls(5); ++call)
      clear.took(key, *clear.next(key), 0);
    const auto reason = plans->reason(key);
    ASSERT_TRUE(reason && reason->is_measured);
    EXPECT_EQ(reason->sentence, "measured: 2.00 times as fast as serial, medians of 1 ms and 2 ms");
    EXPECT_NEAR(reason->serial_ns, 2e6, 1e3);
  });
}

}  // namespace
}  // namespace plait
