#include "plan/profile.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/processor.h"
#include "plait/error.h"
#include "plan/machine.h"

namespace plait {
namespace {

MachineProfile example() {
  MachineProfile profile = built_in_profile();
  profile.machine = "plait 1, some processor, 2 processors avx2";
  profile.threads = 3;
  profile.copy = 5.25;
  profile.kept = {{.bytes = 1 << 20, .times = 1}, {.bytes = 1 << 24, .times = 2.5}};
  return profile;
}

std::string refusal_of(const std::string& text) {
  try {
    parse_profile(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Profiles, AreWrittenAsTheyAreRead) {
  const std::string text = text_of(example());
  const MachineProfile read = parse_profile(text);
  EXPECT_EQ(text_of(read), text);
  EXPECT_EQ(read.machine, example().machine);
  EXPECT_EQ(read.threads, 3);
  EXPECT_DOUBLE_EQ(read.copy, 5.25);
  EXPECT_EQ(read.products.size(), example().products.size());
  EXPECT_EQ(read.kept, example().kept);
  EXPECT_TRUE(read.is_measured());
  EXPECT_FALSE(built_in_profile().is_measured());
}

TEST(Profiles, SayWhichLineCannotBeRead) {
  const std::string whole = text_of(example());
  const std::string good = whole.substr(0, whole.size() - 4);  // without its end
  EXPECT_EQ(refusal_of(good), "profile: it is incomplete: the last line must be \"end\"");
  EXPECT_EQ(refusal_of(""), "profile: the first line must be \"plait profile 2\", not \"\"");
  EXPECT_EQ(refusal_of("plait profile 1\n"),
            "profile: the first line must be \"plait profile 2\", not \"plait profile 1\"");
  EXPECT_EQ(refusal_of(good + "copy fast\nend\n"),
            "profile, line 39: \"copy fast\" cannot be read");
  EXPECT_EQ(refusal_of("plait profile 2\nmachine x\nend\n"),
            "profile: a line \"product ...\" is missing");
  EXPECT_EQ(refusal_of("plait profile 2\nproduct bf16 1 5\nend\n"),
            "profile: the line \"machine ...\" is missing");
  for (const char* line :
       {"product bf16 0 5", "product bf16 1 0", "product bf16 1", "copy -1", "copy nan",
        "transport shm 1", "ranks 0", "speed 9", "sum 1 2", "product bf16 1 1e300",
        "transport shm 1e300 1", "transport shm 1 1e-300", "kept 1024", "kept 0 1",
        "kept 1024 1e-4", "kept 1024 1000"})
    EXPECT_NE(refusal_of(good + line + "\nend\n"), "") << line;
}

// No machine has such figures, and predictions from them might overflow.
TEST(Profiles, OfImpossibleFiguresAreRefused) {
  const std::vector<std::pair<std::string, std::string>> figures = {
      {"copy", "1e-300"}, {"sum", "1e300"},    {"chunk", "1e300"},
      {"start", "1e300"}, {"beside", "1e300"}, {"uncertainty", "5"}};
  for (const auto& [figure, value] : figures) {
    std::string text = text_of(example());
    const std::size_t begin = text.find('\n' + figure + ' ') + 1;
    std::string line = figure + ' ';
    line += value;
    text.replace(begin, text.find('\n', begin) - begin, line);
    EXPECT_NE(refusal_of(text).find("cannot be read"), std::string::npos) << text;
  }
}

// Random files are either read or refused.
TEST(Profiles, AreReadOrRefusedWhateverIsInThem) {
  std::mt19937 random(5);
  const std::string good = text_of(example());
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    for (int change = 0; change < 3; ++change)
      text[random() % text.size()] = static_cast<char>(random() % 128);
    if (!refusal_of(text).empty()) continue;
    const std::string read = text_of(parse_profile(text));
    EXPECT_EQ(text_of(parse_profile(read)), read) << text;
  }
}

TEST(Profiles, OfWhichAPartIsMissingAreRefused) {
  const std::string good = text_of(example());
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(refusal_of(good.substr(0, length)), "") << good.substr(0, length);
  const std::size_t line = good.find("\ncopy ") + 1;
  const std::string copy = good.substr(line, good.find('\n', line) + 1 - line);
  std::string twice = good;
  EXPECT_EQ(refusal_of(twice.insert(line, copy)), "profile: 2 lines give copy; one must");
  std::string without = good;
  EXPECT_EQ(refusal_of(without.erase(line, copy.size())), "profile: 0 lines give copy; one must");
}

TEST(Profiles, TakeRatesBetweenThoseThatWereMeasured) {
  MachineProfile profile;
  profile.start = 0;
  profile.narrow = 0.3;
  profile.products = {{.kind = "bf16", .rows = 16, .flops_per_ns = 10},
                      {.kind = "bf16", .rows = 64, .flops_per_ns = 40}};
  const PlanKey key = {.op = Operator::matmul, .m = 1, .n = 1, .k = 1};
  const auto time = [&](std::int64_t rows, std::int64_t columns) {
    return profile.product({.rows = rows, .columns = columns, .k = 100}, key);
  };
  EXPECT_NEAR(time(16, 256), 2.0 * 16 * 256 * 100 / 10, 1e-6);
  EXPECT_NEAR(time(32, 256), 2.0 * 32 * 256 * 100 / 20, 1e-6);
  EXPECT_NEAR(time(640, 256), 2.0 * 640 * 256 * 100 / 40, 1e-6);
  EXPECT_NEAR(time(4, 256), time(16, 256), 1e-6);  // the weight is read in both cases
  EXPECT_DOUBLE_EQ(time(16, 1), time(16, 64));     // a panel is multiplied whole
  EXPECT_NEAR(time(16, 64) * 4, time(16, 256) * 1.3, 1e-6);
  EXPECT_NEAR(time(16, 128) * 2, time(16, 256) * 1.1, 1e-6);
}

TEST(Profiles, TakeWhatKeptSumsCostBetweenThoseThatWereMeasured) {
  MachineProfile profile;
  EXPECT_EQ(profile.times_as_long(1e9), 1);  // nothing is known
  profile.kept = {{.bytes = 1000, .times = 1}, {.bytes = 4000, .times = 4}};
  EXPECT_EQ(profile.times_as_long(0), 1);
  EXPECT_EQ(profile.times_as_long(1000), 1);
  EXPECT_NEAR(profile.times_as_long(2000), 2, 1e-9);
  EXPECT_EQ(profile.times_as_long(4000), 4);
  EXPECT_EQ(profile.times_as_long(1e9), 4);
}

TEST(Profiles, TakeATransportThatWasNotMeasuredAsItUsuallyIs) {
  MachineProfile profile = built_in_profile();
  profile.transports = {{.name = "shm", .latency = 7, .bytes_per_ns = 3}};
  const PlanKey shm = {.op = Operator::matmul, .m = 1, .n = 1, .k = 1, .transport = "shm"};
  PlanKey mpi = shm;
  mpi.transport = "mpi";
  EXPECT_EQ(profile.transport(shm).latency, 7);
  EXPECT_EQ(profile.transport(mpi), built_in_profile().transport(mpi));
  EXPECT_GT(profile.transport(mpi).bytes_per_ns, 0);  // 0: no limit
}

// The cost of MPI's messages within a host says nothing about the network.
TEST(Profiles, TellNothingOfOtherNumbersOfHosts) {
  MachineProfile profile = built_in_profile();
  profile.machine = "this one";
  profile.transports = {{.name = "mpi", .latency = 7, .bytes_per_ns = 30}};
  profile.uncertainty = 0.03;
  PlanKey key = {.op = Operator::matmul_all_reduce, .m = 64, .n = 64, .k = 64, .world = 2};
  key.threads = profile.threads;
  key.transport = "mpi";
  EXPECT_EQ(profile.transport(key).latency, 7);
  EXPECT_EQ(profile.uncertainty_of(key), 0.03);
  key.hosts = 2;
  EXPECT_EQ(profile.transport(key), built_in_profile().transport(key));
  EXPECT_EQ(profile.uncertainty_of(key), kElsewhere);
  profile.hosts = 2;
  EXPECT_EQ(profile.transport(key).latency, 7);
  EXPECT_EQ(parse_profile(text_of(profile)).hosts, 2);
}

TEST(Profiles, KnowAKindOfProductByItsOperands) {
  const PlanKey key = {.op = Operator::matmul, .m = 1, .n = 1, .k = 1};
  PlanKey other = key;
  EXPECT_EQ(product_kind(key), "bf16");
  other.weight = "bf16:plain";
  EXPECT_EQ(product_kind(other), "bf16");
  other.weight = "f32:plain";
  EXPECT_EQ(product_kind(other), "f32");
  other.x = Dtype::f16;
  EXPECT_EQ(product_kind(other), "f32");
  other.weight = "s8:group=128";
  EXPECT_EQ(product_kind(other), "s8");
}

TEST(TheMachine, IsTheSameEachTimeAndOneLine) {
  EXPECT_EQ(machine_fingerprint(), machine_fingerprint());
  EXPECT_EQ(machine_fingerprint().find('\n'), std::string::npos);
  EXPECT_EQ(machine_fingerprint().find("plait "), 0U);
}

TEST(TheMachine, IsNamedWithWhatItsProcessorIsNumberedBy) {
  const std::string model = base::read_processor().model;
  EXPECT_NE(machine_fingerprint().find(", " + model + ", "), std::string::npos) << model;
}

}  // namespace
}  // namespace plait
