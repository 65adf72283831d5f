// The operators whose product comes first: one loop, whose step is the whole product (serial), a
// part of it (pipelined) or a chunk (fused).
#include <algorithm>
#include <memory>
#include <vector>

#include "base/round_up.h"
#include "overlap/calls.h"
#include "overlap/op_impl.h"
#include "overlap/operator_flows.h"
#include "plait/buffer.h"
#include "tensor/room.h"

namespace plait::overlap {
namespace {

struct Shape {
  Cut cut;
  bool one_step;     // of all-reduce
  bool direct;       // parts are chunks, written into the slots
  int per_host = 1;  // ranks that add up their sums before these cross to other hosts
};

// The ranks among which a matrix is cut.
struct Peers {
  int world;
  bool linked;
  int per_host;  // see comm/session/placement.h
};

plan::PartialSums sums_of(const Problem& problem) {
  return {.m = problem.m, .n = problem.n, .dtype = problem.wire};
}

bool is_all_reduce(const Problem& problem) {
  return traits_of(problem.op).reduces && traits_of(problem.op).gathers;
}

Shape cut_shape_of(const Problem& problem, const Plan& plan, const Peers& peers) {
  const int world = peers.world;
  const plan::PartialSums sums = sums_of(problem);
  const bool one_step = is_all_reduce(problem) && plan::is_one_step(sums, world);
  const Ownership owners = one_step ? Ownership::replicated(problem.m, problem.n, world)
                                    : Ownership::sharded(problem.m, problem.n, world);
  const std::int64_t copied = plan::copied_elements(problem.wire);
  const std::int64_t unit = problem.wire == Dtype::s8 ? tensor::kScaleGroup : 1;
  switch (plan.schedule) {
    case Schedule::serial:
      break;
    case Schedule::pipelined:
      if (plan.axis == Axis::rows)
        return {.cut = Cut::by_rows(owners, plan.parts, plan).in_chunks_of(copied, unit),
                .one_step = one_step,
                .direct = false};
      return {.cut = Cut::by_columns(owners, plan::column_parts(problem.n, plan, problem.wire))
                         .in_chunks_of(copied, unit),
              .one_step = one_step,
              .direct = false};
    case Schedule::fused: {
      const std::int64_t width =
          plan.chunk > 0 ? plan.chunk : plan::suitable_chunk(sums, world, peers.linked);
      return {.cut = Cut::by_columns(owners, plan::column_chunks(problem.n, width, problem.wire)),
              .one_step = one_step,
              .direct = problem.wire != Dtype::s8 && !plan::are_copied_at_once(sums)};
    }
  }
  return {.cut = Cut::by_rows(owners, 1, {.schedule = Schedule::serial}).in_chunks_of(copied, unit),
          .one_step = one_step,
          .direct = false};
}

// Narrower sums of a host would be rounded once more than without it. What is added up once more is
// not written into the slots.
Shape shape_of(const Problem& problem, const Plan& plan, const Peers& peers) {
  Shape shape = cut_shape_of(problem, plan, peers);
  if (shape.one_step || problem.wire != Dtype::f32) return shape;
  shape.per_host = peers.per_host;
  shape.direct = shape.direct && peers.per_host == 1;
  return shape;
}

// The columns of a chunk of which the plan says how wide it is.
std::int64_t widest_chunk(const Problem& problem, const Plan& plan) {
  const std::int64_t asked = std::min(plan.chunk, problem.n);
  return problem.wire == Dtype::s8 ? std::min(base::round_up(asked, plan::kPanel), problem.n)
                                   : asked;
}

// Elements that no block of shape_of() is larger than, of the problem or one of fewer rows.
std::int64_t largest_block(const Problem& problem, const Plan& plan, const Peers& peers) {
  const std::int64_t own_rows = base::ceil_div(problem.m, peers.world);
  const std::int64_t one_step =
      is_all_reduce(problem)
          ? std::min(problem.m * problem.n, plan::most_in_one_step(problem.wire, peers.world))
          : 0;
  if (plan.schedule != Schedule::fused)
    return std::min(plan::copied_elements(problem.wire), std::max(own_rows * problem.n, one_step));
  const std::int64_t own =
      plan.chunk > 0 ? own_rows * widest_chunk(problem, plan)
                     : plan::largest_suitable_block(sums_of(problem), peers.world, peers.linked);
  return std::max(own, one_step);
}

class ComputeFirst final : public OpImpl {
 public:
  ComputeFirst(OpSpec spec, Communicator& comm)
      : problem_(spec.problem),
        state_(comm.state()),
        peers_{.world = comm.world(),
               .linked = is_over_a_link(comm),
               .per_host = comm.state().ranks_per_host()},
        threads_(spec.threads),
        multiplier_(std::move(spec.gemm), spec.group),
        exchange_(comm.state().group(), kMostWays),
        flows_(exchange_),
        blocks_(static_cast<std::size_t>(comm.world())),
        sources_(blocks_.size()) {}

  void make_room(std::int64_t m, const Plan& plan) override {
    const Problem most = with_rows(m);
    const std::int64_t block = largest_block(most, plan, peers_);
    const MailboxDesc desc = Exchange::mailbox_for(ways(is_one_step(most)), slot_bytes(block, m));
    state_.operator_mailbox(desc, desc, tag_of(most, plan));
  }

  void run(const Call& call) override {
    Tag tag = tag_;
    if (call.bias != nullptr) tag.sizes[2] += kTagBias;  // all ranks' sums have it, or none's
    flows_.poll = PollHook(call.poll);
    run_call(state_, tag, flows_.poll, [&](const Tag& numbered) { run_numbered(call, numbered); });
  }

  std::size_t held_bytes() const override { return memory_.bytes() + multiplier_.held_bytes(); }

 private:
  static constexpr int kMostWays = 2;

  bool reduces() const { return traits_of(problem_.op).reduces; }
  bool gathers(bool one_step) const { return traits_of(problem_.op).gathers && !one_step; }
  int ways(bool one_step) const { return reduces() && gathers(one_step) ? kMostWays : 1; }
  bool is_one_step(const Problem& problem) const {
    return is_all_reduce(problem) && plan::is_one_step(sums_of(problem), peers_.world);
  }

  bool has_row_parts() const {
    return cut_.parts().size() > 1 && cut_.parts()[0].columns == cut_.parts()[1].columns;
  }

  Problem with_rows(std::int64_t m) const {
    Problem problem = problem_;
    problem.m = m;
    return problem;
  }

  // The dtype in which blocks leave the product.
  Dtype partial() const { return plan::partial_dtype(problem_.wire); }

  // For blocks of at most so many elements, of a call of m rows.
  std::size_t slot_bytes(std::int64_t block, std::int64_t m) const {
    const std::int64_t most = plan::most_wire_bytes(problem_.wire, block, std::min(block, m));
    return std::max(static_cast<std::size_t>(most),
                    static_cast<std::size_t>(block) * size_of(problem_.out));
  }

  void cut(std::int64_t m, const Plan& plan) override {
    problem_.m = m;
    tag_ = tag_of(problem_, plan);
    Shape shape = shape_of(problem_, plan, peers_);
    cut_ = std::move(shape.cut);
    direct_ = shape.direct;
    one_step_ = shape.one_step;
    fused_ = plan.schedule == Schedule::fused;
    poll_ = plan.poll;
    const MailboxDesc least =
        Exchange::mailbox_for(ways(one_step_), slot_bytes(cut_.largest_block(), m));
    const MailboxDesc wanted = Exchange::mailbox_for(
        ways(one_step_), slot_bytes(largest_block(problem_, plan, peers_), m));
    exchange_.use(state_.operator_mailbox(least, wanted, tag_));
    own_rows_ = Ownership::sharded(m, problem_.n, peers_.world)
                    .of_rank[static_cast<std::size_t>(exchange_.rank())];
    flows_.reduce.reset();
    flows_.gather.reset();
    if (reduces()) {
      flows_.reduce =
          std::make_unique<BlockReduce>(exchange_, cut_, problem_.wire, threads_, shape.per_host);
    }
    if (gathers(one_step_))
      flows_.gather = std::make_unique<BlockGather>(
          exchange_, cut_, reduces() ? Way::back : Way::out, peers_.per_host);
    make_buffers();
  }

  // A partial sum is kept until all its chunks have been sent and summed. Where blocks are written
  // into the peers' slots it is only this rank's own. A fused plan keeps as many chunks as may be
  // on their way: with fewer, each would wait for a link to have brought the one before.
  void make_buffers() {
    if (!reduces()) return;
    std::int64_t largest = 0;
    for (const Cut::Part& part : cut_.parts())
      largest = std::max(largest, kept_rows(part) * length(part.columns));
    const auto parts = static_cast<std::uint32_t>(cut_.parts().size());
    kept_until_.resize(std::min(parts, fused_ ? kDepth : 2U));
    buffer_bytes_ = base::round_up(static_cast<std::size_t>(largest) * size_of(partial()), 64);
    tensor::make_room(memory_, buffer_bytes_ * kept_until_.size());
  }

  std::int64_t kept_rows(const Cut::Part& part) const {
    const auto rank = static_cast<std::size_t>(exchange_.rank());
    return direct_ || one_step_ ? length(part.rows()[rank]) : part.all_rows();
  }

  void run_numbered(const Call& call, const Tag& tag) {
    exchange_.begin(tag);
    std::fill(kept_until_.begin(), kept_until_.end(), 0U);
    Operands operands = call.operands;
    if (reduces()) {
      operands.bias = {};
      const bool shard = traits_of(problem_.op).has_own_out();
      flows_.reduce->begin(
          {.out = call.out, .first_row = shard ? own_rows_.begin : 0, .bias = call.bias});
    }
    if (flows_.gather) flows_.gather->begin({.own = call.out, .first_row = 0, .all = call.out});
    multiplier_.begin(
        operands,
        {.poll = poll_, .fused_rows = fused_ ? problem_.m : 0, .rows_in_turns = has_row_parts()});
    if (cut_.parts().size() > 1) multiplier_.pack();
    for (std::size_t part = 0; part < cut_.parts().size(); ++part) {
      if (!reduces()) {
        make_rows(part, call.out);
      } else if (direct_) {
        make_in_slots(part);
      } else {
        make_in_buffer(part);
      }
      flows_.step();
    }
    multiplier_.end();
    exchange_.wait([&] { return flows_.finish(); }, [&] { return flows_.awaited(); });
  }

  // For a part's blocks. The first place that is free: where sums keep up, one or two stay in the
  // cache.
  std::byte* take_buffer(const Cut::Part& part) {
    std::size_t place = 0;
    exchange_.wait(
        [&] {
          flows_.wait_step();
          const std::uint32_t past = flows_.reduce->retired();
          const auto free = std::find_if(kept_until_.begin(), kept_until_.end(),
                                         [&](std::uint32_t end) { return end <= past; });
          place = static_cast<std::size_t>(free - kept_until_.begin());
          return free != kept_until_.end();
        },
        [&] { return flows_.awaited(); });
    kept_until_[place] = part.end_chunk();
    return memory_.data() + place * buffer_bytes_;
  }

  // Multiplies straight into the slots of the owners, which add the blocks up.
  void make_in_slots(std::size_t index) {
    const Cut::Part& part = cut_.parts()[index];
    std::byte* own = take_buffer(part);
    exchange_.wait(
        [&] {
          flows_.wait_step();
          return flows_.reduce->has_room();
        },
        [&] { return flows_.awaited(); });
    const auto rank = static_cast<std::size_t>(exchange_.rank());
    const std::int64_t columns = length(part.columns);
    for (std::size_t owner = 0; owner < blocks_.size(); ++owner) {
      if (owner == rank) {
        blocks_[owner] = {.data = own,
                          .dtype = partial(),
                          .rows = length(part.rows()[rank]),
                          .cols = columns,
                          .row_stride = columns};
      } else {
        blocks_[owner] = flows_.reduce->slot(static_cast<int>(owner));
      }
    }
    multiplier_.multiply({.rows = {0, problem_.m}, .columns = part.columns, .outs = blocks_},
                         [&] { flows_.between_tiles(); });
    flows_.reduce->posted(blocks_[rank]);
  }

  // Into memory of this rank, from where it is sent on.
  void make_in_buffer(std::size_t index) {
    const Cut::Part& part = cut_.parts()[index];
    std::byte* to = take_buffer(part);
    const std::int64_t columns = length(part.columns);
    const std::int64_t row_bytes = columns * static_cast<std::int64_t>(size_of(partial()));
    for (std::size_t owner = 0; owner < blocks_.size(); ++owner) {
      const std::int64_t rows = length(part.rows()[owner]);
      blocks_[owner] = {
          .data = to, .dtype = partial(), .rows = rows, .cols = columns, .row_stride = columns};
      sources_[owner] = blocks_[owner];
      if (!one_step_) to += rows * row_bytes;
    }
    multiply_blocks(part);
    flows_.reduce->ready(static_cast<int>(index), sources_);
  }

  // Makes one product for each run of adjacent rows, to read the weight as seldom as possible.
  void multiply_blocks(const Cut::Part& part) {
    const std::size_t owners = one_step_ ? 1 : blocks_.size();
    for (std::size_t first = 0; first < owners;) {
      const std::size_t end = one_step_ ? 1 : part.end_of_run(first);
      multiplier_.multiply({.rows = {part.rows()[first].begin, part.rows()[end - 1].end},
                            .columns = part.columns,
                            .outs = std::span(blocks_).subspan(first, end - first)},
                           [&] { flows_.between_tiles(); });
      first = end;
    }
  }

  // This rank's rows of the result, which the others get a copy of.
  void make_rows(std::size_t index, const TensorView& out) {
    const Cut::Part& part = cut_.parts()[index];
    const Range rows = part.rows()[static_cast<std::size_t>(exchange_.rank())];
    const TensorView place =
        out.row_range(rows.begin, rows.end).column_range(part.columns.begin, part.columns.end);
    multiplier_.multiply({.rows = {rows.begin - own_rows_.begin, rows.end - own_rows_.begin},
                          .columns = part.columns,
                          .outs = std::span(&place, 1)},
                         [&] { flows_.between_tiles(); });
    flows_.gather->ready(part.end_chunk());
  }

  Problem problem_;  // of the call that it was cut for
  Communicator::State& state_;
  Peers peers_;
  int threads_;
  Tag tag_;
  Cut cut_ = Cut::by_columns({}, {});
  bool fused_ = false;
  bool direct_ = false;
  bool one_step_ = false;
  std::int64_t poll_ = 0;
  Multiplier multiplier_;
  Exchange exchange_;
  OperatorFlows flows_;
  Range own_rows_;
  Buffer memory_;
  std::vector<std::uint32_t>
      kept_until_;  // of each place in it: where the chunks end that it keeps
  std::size_t buffer_bytes_ = 0;
  std::vector<TensorView> blocks_;  // of a part, by owner
  std::vector<ConstTensorView> sources_;
};

}  // namespace

std::unique_ptr<OpImpl> make_compute_first(OpSpec spec, Communicator& comm) {
  return std::make_unique<ComputeFirst>(std::move(spec), comm);
}

}  // namespace plait::overlap
