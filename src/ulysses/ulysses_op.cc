#include "ulysses/ulysses_op.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/fingerprint.h"
#include "base/round_up.h"
#include "comm/session/state.h"
#include "ops/busy.h"
#include "ops/call_parts.h"
#include "ops/op_checks.h"
#include "ops/shapes.h"
#include "plan/sizes.h"
#include "tensor/copy_rows.h"
#include "tensor/room.h"
#include "ulysses/columns.h"

namespace plait::ulysses {

using comm::Way;
using plan::length;

namespace {

// A fused chunk's elements at most. More rows make several chunks of the same columns.
constexpr std::int64_t kMostFused = 256 * 1024;

// The rows of a product, at least, where rows are multiplied as they come: each product reads the
// weight. Through shared memory rows come faster than products take them.
constexpr std::int64_t kLeastRowsOverLink = 32;
constexpr std::int64_t kLeastRows = 256;
constexpr std::int64_t kLeastRowsOfChunk = 16;

std::uint64_t fingerprint_of(const ColumnGroups& columns) {
  std::uint64_t hash = base::fingerprint(std::vector<std::int64_t>{std::ssize(columns)});
  for (const std::vector<ColumnRange>& group : columns) {
    std::vector<std::int64_t> numbers = {std::ssize(group)};
    for (const ColumnRange& range : group) {
      numbers.push_back(range.first);
      numbers.push_back(range.count);
    }
    hash = base::fingerprint(numbers, hash);
  }
  return hash;
}

Tag tag_for(const Kind& kind, std::int64_t m, const Plan& plan) {
  const std::uint64_t groups = fingerprint_of(kind.columns);
  return {
      .operation = kind.product_first ? Operation::matmul_all_to_all : Operation::all_to_all_matmul,
      .dtype = kind.x,
      .wire = kind.travelling(),
      .plan = fingerprint(plan) ^ static_cast<std::uint32_t>(groups ^ (groups >> 32)),
      .sizes = {m, kind.n, kind.k + kTagOut * static_cast<std::int64_t>(kind.out)}};
}

Gemm select_for(const Kind& kind) try {
  return select_gemm({.m = 512,
                      .n = kind.n,
                      .k = kind.k,
                      .x = kind.x,
                      .weight = kind.weight.scheme ? Dtype::bf16 : kind.weight.dtype,
                      .out = kind.out,
                      .quant = kind.weight.scheme},
                     {.backend = kind.backend, .threads = kind.threads});
} catch (const Error& error) {
  throw ops::in_words_of(kind.caller(), error);
}

TensorView part_of(const TensorView& matrix, std::int64_t first_row, Range rows, Range columns) {
  return matrix.row_range(first_row + rows.begin, first_row + rows.end)
      .column_range(columns.begin, columns.end);
}
ConstTensorView part_of(const ConstTensorView& matrix, std::int64_t first_row, Range rows,
                        Range columns) {
  return matrix.row_range(first_row + rows.begin, first_row + rows.end)
      .column_range(columns.begin, columns.end);
}

}  // namespace

UlyssesOp::UlyssesOp(Kind kind, Communicator& comm)
    : kind_(std::move(kind)),
      comm_(comm),
      state_(comm.state()),
      linked_(overlap::is_over_a_link(comm)),
      multiplier_(select_for(kind_), &comm.state().group()),
      exchange_(comm.state().group(), 1),
      flow_(exchange_, *this),
      shards_(static_cast<std::size_t>(comm.world())),
      to_(shards_.size()),
      from_(shards_.size()),
      ready_(shards_.size()),
      next_part_(shards_.size()),
      blocks_(shards_.size()) {}

// It depends on nothing that only one rank knows: both ranks of a pair cut alike.
CutRule UlyssesOp::rule_for(const Plan& plan) const {
  const Dtype dtype = kind_.travelling();
  const std::int64_t rows = base::ceil_div(m_, world());
  CutRule rule = {.plan = plan,
                  .by_columns = kind_.product_first &&
                                (plan.schedule != Schedule::pipelined || plan.axis != Axis::rows),
                  .most_elements = plan::copied_elements(dtype)};
  if (world() == 1) rule.plan = {.schedule = Schedule::serial};
  if (rule.plan.schedule != Schedule::fused) return rule;
  if (kind_.product_first) {
    if (plan::are_copied_at_once({.m = m_, .n = kind_.n, .dtype = dtype})) {
      rule.plan = {.schedule = Schedule::serial};
      return rule;
    }
    const plan::PartialSums block = {.m = rows, .n = kind_.n / world(), .dtype = dtype};
    rule.width = plan.chunk > 0 ? std::min(plan.chunk, std::max<std::int64_t>(kind_.n, 1))
                                : plan::suitable_chunk(block, world(), linked_);
    rule.height = std::max<std::int64_t>(kMostFused / rule.width, 1);
    return rule;
  }
  if (plan::gathers_all_first({.m = m_, .n = kind_.n}, world(), linked_)) {
    rule.plan = {.schedule = Schedule::serial};
    return rule;
  }
  const std::int64_t row = std::max<std::int64_t>(kind_.k / world(), 1);
  rule.height = plan.chunk > 0 ? plan.chunk : std::max(rule.most_elements / row, kLeastRowsOfChunk);
  return rule;
}

// Elements that no chunk is larger than.
std::int64_t UlyssesOp::largest_chunk(const CutRule& rule) const {
  const std::int64_t rows = base::ceil_div(m_, world());
  const std::int64_t columns = kind_.product_first ? kind_.n : kind_.k;
  if (rule.plan.schedule == Schedule::fused && kind_.product_first)
    return std::min(rule.width, columns) * std::min(rule.height, rows);
  return std::min(rule.most_elements, rows * columns);
}

void UlyssesOp::fit(std::int64_t m, const Plan& plan) {
  if (plan_ && m_ == m && *plan_ == plan) return;
  plan_.reset();  // until all is there
  m_ = m;
  const CutRule rule = rule_for(plan);
  tag_ = tag_for(kind_, m, plan);
  for (int peer = 0; peer < world(); ++peer) shards_[index(peer)] = ops::shard_of(m, peer, world());
  const std::int64_t own = length(rows_of(rank()));
  for (int peer = 0; peer < world(); ++peer) {
    const std::int64_t its = length(rows_of(peer));
    to_[index(peer)] =
        kind_.product_first ? BlockCut(own, group(peer), rule) : BlockCut(its, group(rank()), rule);
    from_[index(peer)] =
        kind_.product_first ? BlockCut(its, group(rank()), rule) : BlockCut(own, group(peer), rule);
  }
  writes_into_slots_ = kind_.product_first && rule.plan.schedule == Schedule::fused;
  poll_interval_ = plan.poll;
  is_serial_ = plan.schedule == Schedule::serial;
  rows_in_turns_ = rule.plan.schedule != Schedule::serial &&
                   (!kind_.product_first || !rule.by_columns || rule.height < own);
  least_rows_ = rule.plan.schedule != Schedule::fused ? 1
                : linked_                             ? kLeastRowsOverLink
                                                      : kLeastRows;
  const MailboxDesc mailbox = overlap::Exchange::mailbox_for(
      1, static_cast<std::size_t>(largest_chunk(rule)) * size_of(kind_.travelling()));
  if (world() > 1) exchange_.use(state_.operator_mailbox(mailbox, mailbox, tag_));
  if (kind_.product_first && !writes_into_slots_) make_blocks();
  plan_ = plan;
}

// For own rows of X with all k, where the caller does not ask for them.
void UlyssesOp::make_rows() {
  const std::int64_t own = length(rows_of(rank()));
  tensor::make_room(memory_, static_cast<std::size_t>(own * kind_.k) * size_of(kind_.x));
}

// For results that are copied into slots.
void UlyssesOp::make_blocks() {
  const std::int64_t own = length(rows_of(rank()));
  const std::size_t size = size_of(kind_.out);
  const std::int64_t columns = kind_.n - count_of(group(rank()));
  tensor::make_room(memory_, static_cast<std::size_t>(own * columns) * size);
  std::byte* at = memory_.data();
  for (const int peer : exchange_.peers()) {
    TensorView& block = blocks_[index(peer)];
    const std::int64_t cols = count_of(group(peer));
    block = {.data = at, .dtype = kind_.out, .rows = own, .cols = cols, .row_stride = cols};
    at += block.bytes();
  }
}

void UlyssesOp::run(const Operands& operands, std::int64_t m, const UlyssesOptions& options) try {
  const std::string_view caller = kind_.caller();
  const ops::Busy busy(state_, caller);
  const PollHook poll = ops::hook_of(caller, options.poll);
  const comm::PollHookInWaits in_waits(state_.group(), caller, poll);
  try {
    fit(m, options.plan.value_or(Plan{}));
    if (!kind_.product_first && options.gathered.data == nullptr && !has_whole_x()) make_rows();
  } catch (const Error& error) {
    ops::tell_shortage(caller, error, comm_);
    throw ops::in_words_of(caller, error);
  } catch (const std::exception& error) {  // from lists of parts and chunks
    ops::tell_shortage(caller, Error(Code::system, error.what()), comm_);
    throw;  // not reached: all ranks throw the same
  }
  poll_ = overlap::PollHook(poll ? &poll : nullptr);
  Tag tag = tag_;
  if (options.bias.data != nullptr) tag.sizes[2] += kTagBias;
  overlap::run_call(state_, tag, poll_,
                    [&](const Tag& numbered) { run_numbered(operands, options, numbered); });
  state_.group().finish_sending();
} catch (const Error& error) {
  if (error.code() != Code::mismatch) throw;
  throw ops::in_words_of(kind_.caller(), error);
}

void UlyssesOp::run_numbered(const Operands& operands, const UlyssesOptions& options,
                             const Tag& tag) {
  exchange_.begin(tag);
  x_ = ops::counted(operands.x);
  out_ = ops::counted(operands.out);
  std::fill(ready_.begin(), ready_.end(), 0U);
  std::fill(next_part_.begin(), next_part_.end(), 0U);
  multiplier_.begin({.x = x_, .weight = operands.weight, .bias = options.bias},
                    {.poll = poll_interval_,
                     .fused_rows = writes_into_slots_ ? x_.rows : 0,
                     .rows_in_turns = rows_in_turns_});
  if (kind_.product_first) {
    multiply_first();
  } else {
    multiply_last(options);
  }
  multiplier_.end();
  wait([&] {
    wait_step();
    return flow_.done();
  });
}

ConstTensorView UlyssesOp::outgoing(std::uint32_t chunk, int peer) const {
  const Window& window = to_[index(peer)].chunk(chunk);
  if (kind_.product_first)
    return part_of(blocks_[index(peer)], 0, window.rows, window.columns_in_block());
  return part_of(x_, rows_of(peer).begin, window.rows, window.columns_in_block());
}

TensorView UlyssesOp::incoming(std::uint32_t chunk, int peer) const {
  const Window& window = from_[index(peer)].chunk(chunk);
  if (kind_.product_first)
    return part_of(out_, rows_of(peer).begin, window.rows, window.columns_in_block());
  return part_of(rows_, 0, window.rows, window.columns);
}

void UlyssesOp::wait_step() {
  flow_.step();
  poll_();
}

void UlyssesOp::between_tiles() {
  flow_.step();
  if (world() > 1) exchange_.between_tiles();
  poll_();
}

// While chunks are written straight into slots, the flow knows nothing of those to come.
comm::Awaited UlyssesOp::awaited() const {
  for (const int peer : exchange_.peers()) {
    if (writes_into_slots_ && has_part_for(peer) && !exchange_.vacant(Way::out, peer))
      return exchange_.room_at(Way::out, peer);
  }
  return flow_.awaited();
}

void UlyssesOp::multiply(const Window& window, const TensorView& to) {
  multiplier_.multiply({.rows = window.rows, .columns = window.columns, .outs = std::span(&to, 1)},
                       [&] { between_tiles(); });
}

// The blocks of other ranks first: they travel while this rank's own columns are multiplied.
void UlyssesOp::multiply_first() {
  if (world() > 1 || group(rank()).size() > 1) multiplier_.pack();
  if (writes_into_slots_) {
    multiply_into_slots();
  } else {
    multiply_into_memory();
  }
  while (multiply_own_part()) continue;
  if (is_serial_) let_all_go();
}

void UlyssesOp::let_all_go() {
  for (const int peer : exchange_.peers()) ready_[index(peer)] = to_[index(peer)].chunks();
}

void UlyssesOp::multiply_into_memory() {
  const std::size_t parts = to_[index(rank())].parts().size();
  for (std::size_t part = 0; part < parts; ++part) {
    for (const int peer : exchange_.peers()) {
      const BlockCut::Part& own = to_[index(peer)].parts()[part];
      for (const Window& window : own.windows) {
        multiply(window, part_of(blocks_[index(peer)], 0, window.rows, window.columns_in_block()));
      }
      if (is_serial_) continue;
      ready_[index(peer)] = own.end_chunk;
      flow_.step();
    }
  }
}

// A rank waits only for room, and takes what has come while it does, so room always comes: the
// order in which ranks make chunks need not be the same.
void UlyssesOp::multiply_into_slots() {
  for (;;) {
    bool is_any_left = false;
    bool has_multiplied = false;
    for (const int peer : exchange_.peers()) {
      if (!has_part_for(peer)) continue;
      is_any_left = true;
      if (!exchange_.vacant(Way::out, peer)) continue;
      multiply_for(peer);
      has_multiplied = true;
    }
    if (!is_any_left) return;
    if (has_multiplied || multiply_own_part()) continue;
    wait([&] {
      wait_step();
      return std::any_of(exchange_.peers().begin(), exchange_.peers().end(), [&](int peer) {
        return has_part_for(peer) && exchange_.vacant(Way::out, peer);
      });
    });
  }
}

bool UlyssesOp::has_part_for(int peer) const {
  return next_part_[index(peer)] < to_[index(peer)].parts().size();
}

// A chunk, straight into the slot of the rank that it is for.
void UlyssesOp::multiply_for(int peer) {
  const Window& window = to_[index(peer)].parts()[next_part_[index(peer)]++].windows.front();
  const std::int64_t columns = length(window.columns);
  const TensorView slot = {.data = exchange_.outbox(Way::out, peer),
                           .dtype = kind_.out,
                           .rows = length(window.rows),
                           .cols = columns,
                           .row_stride = columns};
  multiply(window, slot);
  exchange_.post(Way::out, peer, slot.bytes());
  ++ready_[index(peer)];
  flow_.step();
}

bool UlyssesOp::multiply_own_part() {
  if (!has_part_for(rank())) return false;
  for (const Window& window : to_[index(rank())].parts()[next_part_[index(rank())]++].windows)
    multiply(window, part_of(out_, rows_of(rank()).begin, window.rows, window.columns_in_block()));
  return true;
}

// A single rank has nothing to receive, and its columns may lie as those of the whole.
bool UlyssesOp::has_whole_x() const {
  return world() == 1 && group(rank()) == std::vector<ColumnRange>{{.first = 0, .count = kind_.k}};
}

void UlyssesOp::multiply_last(const UlyssesOptions& options) {
  const std::int64_t own = length(rows_of(rank()));
  const bool is_asked_for = options.gathered.data != nullptr;
  if (has_whole_x() && !is_asked_for)
    return multiplier_.multiply_rows(x_, out_, [&] { between_tiles(); });
  rows_ = is_asked_for ? ops::counted(options.gathered) : memory_.view(kind_.x, own, kind_.k);
  let_all_go();
  flow_.step();
  take_own();
  for (std::int64_t done = 0; done < own;) {
    std::int64_t came = 0;
    wait([&] {
      wait_step();
      came = rows_that_came();
      return came == own || came - done >= least_rows_;
    });
    multiplier_.multiply_rows(rows_.row_range(done, came), out_.row_range(done, came),
                              [&] { between_tiles(); });
    done = came;
  }
}

// This rank's own part of its rows goes where the others' parts go.
void UlyssesOp::take_own() {
  for (const BlockCut::Part& part : to_[index(rank())].parts()) {
    for (const Window& window : part.windows) {
      const ConstTensorView from =
          part_of(x_, rows_of(rank()).begin, window.rows, window.columns_in_block());
      const auto work = [&] {
        const auto bytes = static_cast<std::int64_t>(from.bytes());
        return comm::MemoryWork{.label = "take", .read = bytes, .written = bytes};
      };
      exchange_.run(
          work, [&] { tensor::copy_rows(from, part_of(rows_, 0, window.rows, window.columns)); });
    }
  }
}

// The rows of which all ranks' columns have come.
std::int64_t UlyssesOp::rows_that_came() const {
  std::int64_t rows = length(rows_of(rank()));
  for (const int peer : exchange_.peers()) {
    const std::uint32_t taken = exchange_.taken(Way::out, peer);
    std::int64_t its = 0;
    for (const BlockCut::Part& part : from_[index(peer)].parts()) {
      if (part.end_chunk > taken) break;
      its = part.end_row;
    }
    rows = std::min(rows, its);
  }
  return rows;
}

}  // namespace plait::ulysses
