#include "conformance/call_pairs.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "comm/session/gather.h"
#include "plait/collectives.h"
#include "plait/linear.h"
#include "plait/link.h"
#include "plait/ops.h"

namespace plait::conformance {

// A program may link all suites and run only some.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CallPairsConformance);

namespace {

constexpr std::int64_t kSize = 8;

struct Call {
  std::string name;
  std::function<void(Communicator&)> make;
};

void call_operator(Communicator& comm) {
  const std::vector<float> ones(kSize * kSize, 1.0F);
  std::vector<float> out(ones.size());
  const auto view = ConstTensorView::of(ones.data(), kSize, kSize);
  matmul_all_reduce(view, WeightView{.view = view, .layout = WeightLayout::out_in},
                    TensorView::of(out.data(), kSize, kSize), comm);
}

void make_layer(Communicator& comm) {
  const ColumnParallelLinear layer({.inputs = kSize,
                                    .outputs = kSize,
                                    .layout = WeightLayout::out_in,
                                    .weight = {.dtype = Dtype::f32}},
                                   comm);
}

void broadcast_own(Communicator& comm) {
  float value = 1;
  broadcast({&value, 1}, comm.rank(), comm);
}

const std::vector<Call>& calls() {
  static const std::vector<Call> all = {
      {"barrier", [](Communicator& comm) { barrier(comm); }},
      {"split", [](Communicator& comm) { comm.split(0, comm.rank()); }},
      {"split without a part", [](Communicator& comm) { comm.split(-1, 0); }},
      {"mailbox", [](Communicator& comm) { comm.make_mailbox({.slots = 2, .slot_bytes = 64}); }},
      {"another mailbox",
       [](Communicator& comm) { comm.make_mailbox({.slots = 3, .slot_bytes = 64}); }},
      {"no link", [](Communicator& comm) { comm.with_link(std::nullopt); }},
      {"a link", [](Communicator& comm) { comm.with_link(parse_link("10gbit,20us")); }},
      {"another link", [](Communicator& comm) { comm.with_link(parse_link("1gbit,20us")); }},
      {"broadcast of this rank", broadcast_own},
      {"operator", call_operator},
      {"layer", make_layer}};
  return all;
}

// Ranks that split a group differently are still in one call. A link needs one host.
bool are_different(const Call& a, const Call& b, bool one_host) {
  const auto splits = [](const Call& call) { return call.name.starts_with("split"); };
  const auto has_link = [](const Call& call) {
    return call.name.ends_with("a link") || call.name.ends_with("another link");
  };
  if (!one_host && (has_link(a) || has_link(b))) return false;
  if (&a == &b) return a.name == "broadcast of this rank";
  return !splits(a) || !splits(b);
}

// Operators and layers put their own name in the place of the other call's.
std::string without_call(const std::string& sentence) {
  const std::size_t colon = sentence.find(": ");
  const bool is_word = colon < sentence.find(' ');
  return is_word ? sentence.substr(colon + 2) : sentence;
}

// Makes a call in a group of its own, and returns the result in words.
std::string outcome(Communicator& part, const Call& call) {
  set_timeout(part, std::chrono::seconds(30));
  try {
    barrier(part);
    call.make(part);
    for (int i = 0; i < 3; ++i) barrier(part);
    return "nothing was noticed";
  } catch (const Error& error) {
    return base::sentence(name(error.code()), " of rank ", error.culprit(), ": ",
                          without_call(error.what()));
  }
}

void expect_one_failure(Communicator& comm, const Call& mine, const std::string& pair) {
  auto part = comm.split(0, comm.rank());
  const auto all = comm::gather_text(outcome(*part, mine), comm);
  for (int rank = 0; rank < comm.world(); ++rank) {
    EXPECT_TRUE(all[rank].starts_with("mismatch"))
        << pair << ", rank " << rank << ": " << all[rank];
    EXPECT_EQ(all[rank], all[0]) << pair << ", rank " << rank;
  }
}

}  // namespace

TEST_P(CallPairsConformance, GetOneMismatchOnAllRanks) {
  if (world() == 1) return;
  run([&](Communicator& comm) {
    for (const Call& one : calls()) {
      for (const Call& other : calls()) {
        if (!are_different(one, other, GetParam().maker.one_host)) continue;
        const Call& mine = comm.rank() == comm.world() - 1 ? other : one;
        expect_one_failure(comm, mine, one.name + " / " + other.name);
      }
    }
  });
}

}  // namespace plait::conformance
