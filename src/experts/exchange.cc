#include "experts/exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "experts/checks.h"
#include "tensor/room.h"

namespace plait::experts {
namespace {

using comm::RowCut;
using overlap::Way;

// A chunk is as large as hides what it costs to hand one over, and small enough that a product can
// begin soon. It has room for a row.
constexpr std::int64_t kChunkBytes = 64 * 1024;

// A run of products has at least so many rows, if they are there, and at most an eighth of them:
// the results of one part go back while the next is multiplied.
constexpr std::int64_t kRowsOfARun = 256;
constexpr std::int64_t kRuns = 8;

std::size_t chunk_bytes(const ExpertExchange::Shape& shape) {
  return static_cast<std::size_t>(std::max(
      {kChunkBytes, shape.rows.travelling_bytes(), shape.rows.result_bytes, shape.gathered_bytes}));
}

RowCut cut_of(std::int64_t bytes, std::int64_t groups, std::size_t chunk) {
  return {ConstTensorView{.dtype = Dtype::s8, .cols = bytes}, groups, chunk};
}

}  // namespace

ExpertExchange::ExpertExchange(Communicator::State& state, const Placement& placement,
                               const Shape& shape)
    : state_(state),
      placement_(placement),
      shape_(shape),
      chunk_bytes_(chunk_bytes(shape)),
      exchange_(state.group(), 2),
      apart_(shape.rows.stored_bytes(), shape.rows.result_bytes),
      store_(shape.rows.stored_bytes(), shape.rows.result_bytes),
      dispatched_(state.group(), placement.groups(), shape.rows, [this] { make_places(); }),
      dispatch_(exchange_, dispatched_,
                cut_of(shape.rows.travelling_bytes(), placement.groups() + 1, chunk_bytes_),
                Way::out),
      return_(exchange_, returned_, cut_of(shape.rows.result_bytes, 0, chunk_bytes_), Way::back),
      gather_(exchange_, gathered_, cut_of(shape.gathered_bytes, 0, chunk_bytes_), Way::out) {}

void ExpertExchange::prepare(const Tag& tag) {
  if (has_mailbox_) return;
  const MailboxDesc desc = overlap::Exchange::mailbox_for(2, chunk_bytes_);
  exchange_.use(state_.operator_mailbox(desc, desc, tag));
  has_mailbox_ = true;
}

std::int64_t ExpertExchange::first_own() const {
  return call_.replicated
             ? static_cast<std::int64_t>(shards_[static_cast<std::size_t>(rank())].offset)
             : 0;
}

std::int64_t ExpertExchange::own_rows() const {
  return call_.replicated
             ? static_cast<std::int64_t>(shards_[static_cast<std::size_t>(rank())].count)
             : call_.rows;
}

int ExpertExchange::owner_of(std::int64_t slot) const {
  const auto row = static_cast<std::size_t>(slot / shape_.rows.top);
  const auto after = std::upper_bound(
      shards_.begin(), shards_.end(), row,
      [](std::size_t at, const Shard& shard) { return at < shard.offset + shard.count; });
  return static_cast<int>(after - shards_.begin());
}

void ExpertExchange::run(const Tag& tag, const Call& call, RowUser& user, overlap::PollHook& poll) {
  call_ = call;
  user_ = &user;
  poll_ = &poll;
  is_wait_used_ = false;
  exchange_.begin(tag);
  dispatch_.reset();
  return_.reset();
  gather_.reset();
  order_.sort(call.ids, placement_);
  shards_.clear();
  for (int peer = 0; call.replicated && peer < world(); ++peer)
    shards_.push_back(balanced_shard(static_cast<std::size_t>(call.rows), peer, world()));
  results_.assign(static_cast<std::size_t>(own_rows() * shape_.rows.top), nullptr);
  is_apart_.assign(static_cast<std::size_t>(groups()), false);
  work_apart_ = {};
  if (call.replicated) {
    find_replicated();
  } else {
    begin_dispatch();
    take_apart();
    while (!dispatch_.flow().has_places() && multiply_apart()) step();
    wait([&] { return call_.fused ? dispatch_.flow().has_places() : dispatch_.done(); });
  }
  multiply_all();
  finish();
  wait([&] { return return_.done() && (call_.replicated || dispatch_.done()); });
  if (!is_wait_used_) use_wait();
}

void ExpertExchange::use_wait() {
  is_wait_used_ = true;
  std::exception_ptr of_step;  // the call's own, although it leaves the caller's code
  const auto step_of_call = [&] {
    try {
      between_tiles();
    } catch (...) {
      of_step = std::current_exception();
      throw;
    }
  };
  try {
    user_->work_beside(step_of_call);
  } catch (...) {
    if (of_step) std::rethrow_exception(of_step);
    poll_->note_thrown();
    throw;
  }
}

void ExpertExchange::begin_dispatch() {
  dispatched_.begin({.rows = call_.rows, .source = *user_, .order = order_});
  for (std::int64_t group = 0; group < groups(); ++group) {
    const std::int64_t count = order_.count(rank(), group);
    const bool is_apart = call_.fused && !call_.whole_groups && world() > 1 && count >= kManyRows;
    is_apart_[static_cast<std::size_t>(group)] = is_apart;
    dispatched_.from.counts(rank())[static_cast<std::size_t>(group)] = is_apart ? 0 : count;
  }
  dispatch_.begin();
  step();
}

// Writes a row that this rank has for itself, and notes where its result will be.
void ExpertExchange::take(std::int64_t slot, const RowStore& store, std::int64_t row) {
  auto* const to = static_cast<std::byte*>(store.bytes().row(row));
  user_->write_row(slot / shape_.rows.top, to);
  if (const float* const weights = user_->slot_weights())
    std::memcpy(to + shape_.rows.shared_bytes, &weights[slot / shape_.rows.parts], sizeof(float));
  const std::int64_t own = slot - first_own() * shape_.rows.top;
  if (own >= 0 && own < std::ssize(results_))
    results_[static_cast<std::size_t>(own)] = store.results().row(row);
}

// This rank's own rows of experts that have many of them, which are multiplied by themselves.
void ExpertExchange::take_apart() {
  std::int64_t rows = 0;
  for (std::int64_t group = 0; group < groups(); ++group)
    if (is_apart_[static_cast<std::size_t>(group)]) rows += order_.count(rank(), group);
  if (rows == 0) return;
  apart_.make(rows);
  run_here("take", rows * shape_.rows.stored_bytes(), [&] {
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < groups(); ++group) {
      if (!is_apart_[static_cast<std::size_t>(group)]) continue;
      for (const std::int64_t slot : order_.slots(rank(), group)) take(slot, apart_, row++);
    }
  });
}

// The next of them, whenever there are no rows of others, whose results have a way to go. False:
// none are left.
bool ExpertExchange::multiply_apart() {
  Work& work = work_apart_;
  work.first_group += std::ssize(work.counts);
  work.begin = work.end;
  work.counts.clear();
  for (std::int64_t group = work.first_group;
       group < groups() && work.end - work.begin < kRowsOfARun; ++group) {
    const bool is_apart = is_apart_[static_cast<std::size_t>(group)];
    work.counts.push_back(is_apart ? order_.count(rank(), group) : 0);
    work.end += work.counts.back();
  }
  if (work.begin == work.end) return false;
  multiply(apart_, work);
  return true;
}

// All numbers of rows are known.
void ExpertExchange::make_places() {
  comm::Group& group = state_.group();
  const auto own = std::ssize(placement_.experts_of(rank()));
  for (int peer = 0; peer < world(); ++peer) {
    for (std::int64_t i = own; i < groups(); ++i) {
      const std::int64_t count = dispatched_.from.counts(peer)[static_cast<std::size_t>(i)];
      if (count == 0) continue;
      group.fail_and_raise(
          {Code::mismatch, peer,
           base::sentence(kLayer, ": rank ", peer, " sends rank ", rank(), " ", count,
                          " rows for its expert ", i, ", but it has ", own, " experts")});
    }
  }
  dispatched_.from.lay_out(true);
  const std::int64_t rows = dispatched_.from.rows();
  if (rows > dispatched_.from.most_rows()) {
    group.fail_and_raise({Code::mismatch, dispatched_.from.rank_of_most(),
                          base::sentence(kLayer, ": ", rows, " rows are for rank ", rank(),
                                         ", for which no memory has room")});
  }
  try {
    store_.make(rows);
  } catch (...) {
    group.fail_and_raise(comm::failure_of_caught(kLayer, rank()));
  }
  dispatched_.set_places(store_);
  progress_.begin(dispatched_.from, {.count = groups(), .whole = call_.whole_groups}, world());
  const std::int64_t own_rows = dispatched_.from.block(rank()).rows();
  run_here("take", own_rows * shape_.rows.stored_bytes(), [&] {
    for (std::int64_t i = 0; i < groups(); ++i) {
      if (is_apart_[static_cast<std::size_t>(i)]) continue;
      std::int64_t row = progress_.first(i, rank());
      for (const std::int64_t slot : order_.slots(rank(), i)) take(slot, store_, row++);
    }
  });
  progress_.set_received(rank(), own_rows);
  begin_return();
}

// The rows of this rank's experts are here: those of a group by owner, since owners' rows follow
// one another.
void ExpertExchange::find_replicated() {
  for (int peer = 0; peer < world(); ++peer) {
    const auto counts = dispatched_.from.counts(peer);
    std::fill(counts.begin(), counts.end(), 0);
  }
  for (std::int64_t group = 0; group < groups(); ++group) {
    for (const std::int64_t slot : order_.slots(rank(), group))
      ++dispatched_.from.counts(owner_of(slot))[static_cast<std::size_t>(group)];
  }
  dispatched_.from.lay_out(true);
  store_.make(dispatched_.from.rows());
  progress_.begin(dispatched_.from, {.count = groups()}, world());
  run_here("take", store_.rows() * shape_.rows.stored_bytes(), [&] {
    std::int64_t row = 0;
    for (const std::int64_t slot : order_.slots(rank())) take(slot, store_, row++);
  });
  for (int peer = 0; peer < world(); ++peer)
    progress_.set_received(peer, dispatched_.from.block(peer).rows());
  begin_return();
}

// Results from other ranks go to rows of their own, those of a rank one after another.
void ExpertExchange::begin_return() {
  returned_.clear(world());
  returned_.from = store_.results();
  const std::int64_t first = first_own() * shape_.rows.top;
  const auto for_each_own = [&](int peer, auto&& visit) {
    for (const std::int64_t slot : order_.slots(peer)) {
      if (slot >= first && slot - first < std::ssize(results_)) visit(slot - first);
    }
  };
  std::int64_t rows = 0;
  for (const int peer : exchange_.peers()) {
    const auto index = static_cast<std::size_t>(peer);
    returned_.to_peers[index] = dispatched_.from.block(peer);
    const std::int64_t before = rows;
    for_each_own(peer, [&](std::int64_t /*slot*/) { ++rows; });
    returned_.from_peers[index].add(before, rows - before);
  }
  tensor::make_room(results_memory_, static_cast<std::size_t>(rows * shape_.rows.result_bytes));
  const TensorView results = results_memory_.view(Dtype::s8, rows, shape_.rows.result_bytes);
  std::int64_t row = 0;
  for (const int peer : exchange_.peers()) {
    for_each_own(peer, [&](std::int64_t slot) {
      results_[static_cast<std::size_t>(slot)] = results.row(row++);
    });
  }
  returned_.to = results;
  return_.begin();
  return_.flow().hold();
}

void ExpertExchange::multiply_all() {
  const std::int64_t most =
      call_.fused && world() > 1 ? std::max(kRowsOfARun, store_.rows() / kRuns) : comm::kMostRows;
  Work work;
  const auto find = [&] {
    for (const int peer : exchange_.peers())
      if (dispatch_.has_begun()) progress_.set_received(peer, dispatched_.received(peer));
    return progress_.find(most, work);
  };
  send_results();
  while (true) {
    bool is_found = find();
    if (!is_found) {
      if (multiply_apart()) {
        step();
        continue;
      }
      if (progress_.done()) return;
      std::uint64_t seen = ~std::uint64_t{0};
      wait([&] {  // which has slept asks again what woke it
        if (is_found || exchange_.moves() == seen) return is_found;
        seen = exchange_.moves();
        return is_found = find();
      });
    }
    multiply(store_, work);
    progress_.finish(work);
    send_results();
  }
}

// Ranks with fewer experts than others have groups without weights, and without rows.
void ExpertExchange::multiply(const RowStore& store, Work& work) {
  const auto own = placement_.experts_of(rank()).size();
  work.counts.resize(
      std::min(work.counts.size(), own - static_cast<std::size_t>(work.first_group)));
  user_->multiply(store, work, [&] { between_tiles(); });
}

void ExpertExchange::send_results() {
  for (const int peer : exchange_.peers()) return_.flow().ready(peer, progress_.finished(peer));
  step();
}

void ExpertExchange::finish() {
  std::vector<std::int64_t> counts(placement_.experts_of(rank()).size(), 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (int peer = 0; peer < world(); ++peer)
      counts[i] += progress_.count(static_cast<std::int64_t>(i), peer);
  }
  user_->finish(store_, counts, [&] { between_tiles(); });
}

void ExpertExchange::gather(const TensorView& out) {
  gathered_.clear(world());
  gathered_.from = as_bytes(out);
  gathered_.to = as_bytes(out);
  for (const int peer : exchange_.peers()) {
    const auto index = static_cast<std::size_t>(peer);
    gathered_.to_peers[index].add(first_own(), own_rows());
    gathered_.from_peers[index].add(static_cast<std::int64_t>(shards_[index].offset),
                                    static_cast<std::int64_t>(shards_[index].count));
  }
  gather_.begin();
  wait([&] { return gather_.done(); });
}

std::int64_t ExpertExchange::rows_from(int source, std::int64_t group) const {
  if (source == rank() && is_apart_[static_cast<std::size_t>(group)])
    return order_.count(source, group);
  return progress_.count(group, source);
}

void ExpertExchange::step() {
  dispatch_.step();
  return_.step();
  gather_.step();
}

void ExpertExchange::between_tiles() {
  step();
  exchange_.between_tiles();
  (*poll_)();
}

comm::Awaited ExpertExchange::awaited() {
  if (dispatch_.has_begun() && !dispatch_.done()) return dispatch_.flow().awaited();
  if (return_.has_begun() && !return_.done()) return return_.flow().awaited();
  return gather_.has_begun() ? gather_.flow().awaited() : exchange_.nothing_awaited();
}

}  // namespace plait::experts
