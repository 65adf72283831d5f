// The operators whose product comes last: rows of x are gathered, or summed, and multiplied as they
// come: all at once (serial), part by part (pipelined), or as many as are there (fused).
#include <algorithm>
#include <memory>
#include <vector>

#include "base/round_up.h"
#include "overlap/calls.h"
#include "overlap/op_impl.h"
#include "overlap/operator_flows.h"
#include "plait/buffer.h"
#include "tensor/copy_rows.h"
#include "tensor/room.h"

namespace plait::overlap {
namespace {

// Elements of a chunk at most. Whole rows: a part of one can't be multiplied.
std::int64_t chunk_elements(const Problem& problem, const Plan& plan) {
  const std::int64_t row = std::max<std::int64_t>(problem.k, 1);
  if (plan.schedule == Schedule::fused && plan.chunk > 0)
    return std::min(plan.chunk, std::max<std::int64_t>(problem.m, 1)) * row;
  return std::max(row, plan::kCopiedBytes / static_cast<std::int64_t>(size_of(problem.x)));
}

Cut cut_of(const Problem& problem, const Plan& plan, const Ownership& owners) {
  const int parts = plan.schedule == Schedule::pipelined ? plan.parts : 1;
  const Plan whole = {.schedule = Schedule::serial};
  return Cut::by_rows(owners, parts, parts > 1 ? plan : whole)
      .in_chunks_of(chunk_elements(problem, plan));
}

// Elements that no block of cut_of() is larger than, of the problem or one of fewer rows.
std::int64_t largest_block(const Problem& problem, const Plan& plan, int world) {
  const std::int64_t own_rows = base::ceil_div(problem.m, world);
  return std::min(chunk_elements(problem, plan), own_rows * problem.k);
}

class CommFirst final : public OpImpl {
 public:
  CommFirst(OpSpec spec, Communicator& comm)
      : problem_(spec.problem),
        state_(comm.state()),
        linked_(is_over_a_link(comm)),
        threads_(spec.threads),
        multiplier_(std::move(spec.gemm), spec.group),
        exchange_(comm.state().group(), ways()),
        flows_(exchange_),
        multiplied_(static_cast<std::size_t>(comm.world())),
        blocks_(static_cast<std::size_t>(comm.world())) {}

  void make_room(std::int64_t m, const Plan& plan) override {
    Problem most = problem_;
    most.m = m;
    const MailboxDesc desc = mailbox_for(largest_block(most, plan, exchange_.world()));
    state_.operator_mailbox(desc, desc, tag_of(most, plan));
  }

  void run(const Call& call) override {
    Tag tag = tag_;
    if (reduces() && call.bias != nullptr) tag.sizes[2] += kTagBias;  // of all ranks' rows, or none
    flows_.poll = PollHook(call.poll);
    run_call(state_, tag, flows_.poll, [&](const Tag& numbered) { run_numbered(call, numbered); });
  }

  std::size_t held_bytes() const override { return memory_.bytes() + multiplier_.held_bytes(); }

 private:
  bool reduces() const { return traits_of(problem_.op).reduces; }
  bool gathers() const { return traits_of(problem_.op).gathers; }
  bool has_turns() const { return takes_what_is_there_ || cut_.parts().size() > 1; }
  int ways() const { return reduces() && gathers() ? 2 : 1; }
  Range own() const { return owners_.of_rank[static_cast<std::size_t>(exchange_.rank())]; }

  MailboxDesc mailbox_for(std::int64_t block) const {
    return Exchange::mailbox_for(ways(), static_cast<std::size_t>(block) * size_of(problem_.x));
  }

  void cut(std::int64_t m, const Plan& plan) override {
    problem_.m = m;
    tag_ = tag_of(problem_, plan);
    owners_ = Ownership::sharded(m, problem_.k, exchange_.world());
    cut_ = cut_of(problem_, plan, owners_);
    poll_ = plan.poll;
    takes_what_is_there_ =
        plan.schedule == Schedule::fused &&
        !plan::gathers_all_first({.m = m, .n = problem_.n}, exchange_.world(), linked_);
    exchange_.use(state_.operator_mailbox(
        mailbox_for(cut_.largest_block()),
        mailbox_for(largest_block(problem_, plan, exchange_.world())), tag_));
    flows_.reduce.reset();
    flows_.gather.reset();
    const int per_host = state_.ranks_per_host();
    if (reduces()) {
      // A host's sum of narrower parts would be rounded once more than without it.
      flows_.reduce = std::make_unique<BlockReduce>(exchange_, cut_, problem_.x, threads_,
                                                    problem_.x == Dtype::f32 ? per_host : 1);
    }
    if (gathers()) {
      flows_.gather = std::make_unique<BlockGather>(exchange_, cut_,
                                                    reduces() ? Way::back : Way::out, per_host);
    }
    if (problem_.gathered) return;
    const std::int64_t rows = gathers() ? m : length(own());
    tensor::make_room(memory_, static_cast<std::size_t>(rows * problem_.k) * size_of(problem_.x));
  }

  void run_numbered(const Call& call, const Tag& tag) {
    exchange_.begin(tag);
    multiplier_.begin(call.operands, {.poll = poll_,
                                      .fused_rows = takes_what_is_there_ ? problem_.m : 0,
                                      .rows_in_turns = has_turns()});
    out_ = call.out;
    // The whole x, or this rank's rows of the sum.
    first_row_ = gathers() ? 0 : own().begin;
    rows_ = problem_.gathered
                ? call.gathered
                : memory_.view(problem_.x, gathers() ? problem_.m : length(own()), problem_.k);
    const ConstTensorView& x = call.operands.x;
    if (flows_.reduce) {
      begin_sums(x);
    } else {
      flows_.gather->begin({.own = x, .first_row = own().begin, .all = rows_});
      flows_.gather->ready(cut_.chunks());
    }
    flows_.step();
    if (takes_what_is_there_) {
      multiply_what_is_there(x);
    } else {
      multiply_parts(x);
    }
    multiplier_.end();
    exchange_.wait([&] { return flows_.finish(); }, [&] { return flows_.awaited(); });
  }

  void begin_sums(const ConstTensorView& x) {
    flows_.reduce->begin({.out = rows_, .first_row = first_row_});
    if (flows_.gather) flows_.gather->begin({.own = rows_, .first_row = 0, .all = rows_});
    for (std::size_t part = 0; part < cut_.parts().size(); ++part) {
      for (std::size_t owner = 0; owner < blocks_.size(); ++owner) {
        const Range rows = cut_.parts()[part].rows()[owner];
        blocks_[owner] = x.row_range(rows.begin, rows.end);
      }
      flows_.reduce->ready(static_cast<int>(part), blocks_);
    }
  }

  // This rank's rows of x go where the others' go.
  void take_own(const ConstTensorView& x, Range rows) {
    const ConstTensorView from = x.row_range(rows.begin - own().begin, rows.end - own().begin);
    const auto work = [&] {
      const auto bytes = static_cast<std::int64_t>(from.bytes());
      return comm::MemoryWork{.label = "take", .read = bytes, .written = bytes};
    };
    exchange_.run(work, [&] { tensor::copy_rows(from, rows_.row_range(rows.begin, rows.end)); });
  }

  // True if all rows of the chunks before `end` are here.
  bool has(std::uint32_t end) const {
    return (!flows_.reduce || flows_.reduce->summed() >= end) &&
           (!flows_.gather || flows_.gather->received() >= end);
  }

  void multiply_parts(const ConstTensorView& x) {
    for (const Cut::Part& part : cut_.parts()) {
      if (!flows_.reduce) take_own(x, part.rows()[static_cast<std::size_t>(exchange_.rank())]);
      exchange_.wait(
          [&] {
            flows_.wait_step();
            return has(part.end_chunk());
          },
          [&] { return flows_.awaited(); });
      if (!gathers()) {
        multiply(part.rows()[static_cast<std::size_t>(exchange_.rank())]);
        continue;
      }
      // Runs of adjacent rows are multiplied at once, to read the weight as seldom as possible.
      for (std::size_t first = 0; first < part.rows().size();) {
        const std::size_t end = part.end_of_run(first);
        multiply({part.rows()[first].begin, part.rows()[end - 1].end});
        first = end;
      }
    }
  }

  void multiply(Range rows) {
    multiplier_.multiply_rows(rows_.row_range(rows.begin - first_row_, rows.end - first_row_),
                              out_.row_range(rows.begin - first_row_, rows.end - first_row_),
                              [&] { flows_.between_tiles(); });
  }

  // This rank's own rows first; then, again and again, the longest run of rows that have come.
  void multiply_what_is_there(const ConstTensorView& x) {
    if (problem_.gathered) take_own(x, own());
    multiplier_.multiply_rows(x, out_.row_range(own().begin, own().end),
                              [&] { flows_.between_tiles(); });
    for (std::size_t rank = 0; rank < multiplied_.size(); ++rank)
      multiplied_[rank] = owners_.of_rank[rank].begin;
    for (std::int64_t left = problem_.m - length(own()); left > 0;) {
      Range run = {0, 0};
      exchange_.wait(
          [&] {
            flows_.wait_step();
            run = longest_run();
            return length(run) > 0;
          },
          [&] { return flows_.awaited(); });
      multiply(run);
      for (std::size_t rank = 0; rank < multiplied_.size(); ++rank) {
        const std::int64_t from = multiplied_[rank];
        if (run.begin <= from && from < run.end)
          multiplied_[rank] = std::min(run.end, owners_.of_rank[rank].end);
      }
      left -= length(run);
    }
  }

  // The longest run of the peers' rows that have come and were not multiplied yet, of one peer or
  // of several with adjacent rows. Each product reads the weight, hence the longest.
  Range longest_run() const {
    Range longest = {0, 0};
    Range run = {0, 0};
    for (const int peer : exchange_.peers()) {
      const Range come = {multiplied_[static_cast<std::size_t>(peer)], end_of_received(peer)};
      if (come.begin == run.end) {
        run.end = come.end;
      } else {
        run = come;
      }
      if (length(run) > length(longest)) longest = run;
    }
    return longest;
  }

  std::int64_t end_of_received(int peer) const {
    const std::uint32_t chunks = flows_.gather->received(peer);
    if (chunks == 0) return owners_.of_rank[static_cast<std::size_t>(peer)].begin;
    return cut_.block(chunks - 1, peer).rows.end;
  }

  Problem problem_;  // of the call that it was cut for
  Communicator::State& state_;
  bool linked_;
  int threads_;
  Tag tag_;
  Ownership owners_ = {};
  Cut cut_ = Cut::by_columns({}, {});
  bool takes_what_is_there_ = false;
  std::int64_t poll_ = 0;
  Multiplier multiplier_;
  Exchange exchange_;
  OperatorFlows flows_;
  Buffer memory_;
  std::vector<std::int64_t> multiplied_;  // by rank: up to which row
  std::vector<ConstTensorView> blocks_;
  TensorView rows_;  // the rows that are multiplied, from `first_row_` of the whole on
  TensorView out_;
  std::int64_t first_row_ = 0;
};

}  // namespace

std::unique_ptr<OpImpl> make_comm_first(OpSpec spec, Communicator& comm) {
  return std::make_unique<CommFirst>(std::move(spec), comm);
}

}  // namespace plait::overlap
