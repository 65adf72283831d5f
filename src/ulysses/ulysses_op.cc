#include "ulysses/ulysses_op.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/default_floats.h"
#include "comm/session/state.h"
#include "ops/busy.h"
#include "ops/call_parts.h"
#include "ops/op_checks.h"
#include "ops/shapes.h"
#include "plan/sizes.h"
#include "tensor/copy_rows.h"
#include "tensor/room.h"
#include "ulysses/cut_rule.h"

namespace plait::ulysses {

using comm::Way;
using plan::length;

namespace {

// The rows of a product, at least, where rows are multiplied as they come: each product reads the
// weight. Through shared memory rows come faster than products take them.
constexpr std::int64_t kLeastRowsOverLink = 32;
constexpr std::int64_t kLeastRows = 256;

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
      places_(kind_.product_first ? Places{.groups = kind_.columns, .shared = {}}
                                  : places_of(kind_.columns, kind_.k)),
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

void UlyssesOp::fit(std::int64_t m, const Plan& plan) {
  if (plan_ && m_ == m && *plan_ == plan) return;
  plan_.reset();  // until all is there
  m_ = m;
  const CallPlace place = {.m = m, .world = world(), .linked = linked_};
  const CutRule rule = rule_for(kind_, place, plan);
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
      1, static_cast<std::size_t>(largest_chunk(kind_, place, rule)) * size_of(kind_.travelling()));
  if (world() > 1) exchange_.use(state_.operator_mailbox(mailbox, mailbox, tag_));
  if (kind_.product_first && !writes_into_slots_) make_blocks();
  tensor::make_room(copies_, static_cast<std::size_t>(own * places_.beyond) * size_of(kind_.x));
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
  std::int64_t columns = 0;
  for (const int peer : exchange_.peers()) columns += count_of(group(peer));
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
  return place_of(window);
}

// The place in own rows of X, or beyond the whole.
TensorView UlyssesOp::place_of(const Window& window) const {
  const Range columns = window.columns;
  if (columns.begin < kind_.k) return part_of(rows_, 0, window.rows, columns);
  const TensorView copies = copies_.view(kind_.x, rows_.rows, places_.beyond);
  return part_of(copies, 0, window.rows, {columns.begin - kind_.k, columns.end - kind_.k});
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
    add_copies({done, came});
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
      exchange_.run(work, [&] { tensor::copy_rows(from, place_of(window)); });
    }
  }
}

// Columns that several ranks have are summed in f32, in the order of ranks, and rounded once.
void UlyssesOp::add_copies(Range rows) const {
  const base::DefaultFloats floats;
  std::vector<float> sum;
  std::vector<float> copy;
  for (const SharedColumns& shared : places_.shared) {
    const auto count = static_cast<std::size_t>(shared.columns.count);
    sum.resize(count);
    copy.resize(count);
    const Range whole = {shared.columns.first, shared.columns.first + shared.columns.count};
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      void* const to = part_of(rows_, row, {0, 1}, whole).data;
      convert(to, kind_.x, sum.data(), Dtype::f32, count);
      for (const std::int64_t at : shared.copies) {
        const Window window = {
            .rows = {row, row + 1}, .columns = {at, at + shared.columns.count}, .at = 0};
        convert(place_of(window).data, kind_.x, copy.data(), Dtype::f32, count);
        for (std::size_t i = 0; i < count; ++i) sum[i] += copy[i];
      }
      convert(sum.data(), Dtype::f32, to, kind_.x, count);
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
