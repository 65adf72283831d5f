#include "experts/layer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fingerprint.h"
#include "base/parallel.h"
#include "experts/combine.h"
#include "ops/busy.h"
#include "plait/collectives.h"
#include "tensor/room.h"

namespace plait {
namespace {

using comm::RowBlock;
using comm::RowCut;
using comm::RowRange;
using experts::kLayer;
using overlap::Way;

// A chunk is as large as hides what it costs to hand one over, and small enough that a product can
// begin soon. It has room for a row.
constexpr std::size_t kChunkBytes = 64 * 1024;

// A run of products has at least so many rows, if they are there, and at most an eighth of them: the
// results of one part go back while the next is multiplied.
constexpr std::int64_t kRowsOfARun = 256;
constexpr std::int64_t kRuns = 8;

template <class T>
const T& checked(const T& desc, const ExpertsOptions& options, Communicator& comm) {
  experts::check(desc, options, {.rank = comm.rank(), .world = comm.world()});
  return desc;
}

experts::RowShape shape_of(const ExpertsDesc& desc) {
  return {.hidden = desc.hidden,
          .dtype = desc.dtype,
          .wire = desc.wire,
          .has_weight = desc.weights_at == ExpertWeightsAt::activation};
}

std::int64_t row_bytes(const ExpertsDesc& desc, Dtype dtype) {
  return desc.hidden * static_cast<std::int64_t>(size_of(dtype));
}

std::size_t chunk_bytes(const ExpertsDesc& desc) {
  return std::max(kChunkBytes, static_cast<std::size_t>(desc.hidden) * sizeof(float) + 64);
}

RowCut cut_of(std::int64_t bytes, std::int64_t groups, std::size_t chunk) {
  return {ConstTensorView{.dtype = Dtype::s8, .cols = bytes}, groups, chunk};
}

std::uint32_t fingerprint_of(const ExpertsDesc& desc, const ExpertsOptions& options,
                             const experts::Placement& placement) {
  const std::string text = base::sentence(
      desc.hidden, ' ', desc.inner, ' ', desc.experts, ' ', desc.top, ' ', name(desc.out), ' ',
      name(desc.weight), ' ', name(desc.activation), ' ', desc.alpha, ' ', desc.limit, ' ',
      name(desc.weights_at), ' ', name(options.schedule), ' ', options.replicated);
  return static_cast<std::uint32_t>(base::fingerprint(placement.ranks(), base::fingerprint(text)));
}

}  // namespace

ExpertParallelMLP::State::State(const ExpertsDesc& desc, Communicator& comm,
                                const ExpertsOptions& options)
    : desc_(checked(desc, options, comm)),
      options_(options),
      state_(comm.state()),
      placement_(desc.experts, comm.world(), desc.ranks),
      shape_(shape_of(desc)),
      products_(desc, options, comm.state().group()),
      exchange_(comm.state().group(), 2),
      fingerprint_(fingerprint_of(desc, options, placement_)),
      apart_(shape_),
      store_(shape_),
      dispatched_(comm.state().group(), placement_.groups(), kLayer, [this] { make_places(); }),
      dispatch_(exchange_, dispatched_,
                cut_of(shape_.bytes(), placement_.groups(), chunk_bytes(desc)), Way::out),
      return_(exchange_, returned_, cut_of(row_bytes(desc, desc.wire), 0, chunk_bytes(desc)),
              Way::back),
      gather_(exchange_, gathered_, cut_of(row_bytes(desc, desc.out), 0, chunk_bytes(desc)),
              Way::out) {}

std::size_t ExpertParallelMLP::State::held_bytes() const {
  return products_.held_bytes() + apart_.held_bytes() + store_.held_bytes() +
         weighted_memory_.bytes() + results_memory_.bytes();
}

std::int64_t ExpertParallelMLP::State::first_own() const {
  return options_.replicated
             ? static_cast<std::int64_t>(shards_[static_cast<std::size_t>(rank())].offset)
             : 0;
}

std::int64_t ExpertParallelMLP::State::own_rows() const {
  return options_.replicated
             ? static_cast<std::int64_t>(shards_[static_cast<std::size_t>(rank())].count)
             : call_->x.rows;
}

int ExpertParallelMLP::State::owner_of(std::int64_t slot) const {
  const auto row = static_cast<std::size_t>(slot / desc_.top);
  const auto after = std::upper_bound(
      shards_.begin(), shards_.end(), row,
      [](std::size_t at, const Shard& shard) { return at < shard.offset + shard.count; });
  return static_cast<int>(after - shards_.begin());
}

Tag ExpertParallelMLP::State::tag_of(const ExpertsForward& call) const {
  Tag tag = {.operation = Operation::expert_parallel_mlp,
             .dtype = desc_.dtype,
             .wire = desc_.wire,
             .plan = fingerprint_,
             .sizes = {desc_.hidden, 0, 0}};
  if (options_.replicated) {
    const std::span weights(reinterpret_cast<const unsigned char*>(call.weights.data()),
                            call.weights.size_bytes());
    tag.sizes[1] = call.x.rows;
    tag.sizes[2] =
        static_cast<std::uint32_t>(base::fingerprint(weights, base::fingerprint(call.ids)));
  }
  return tag;
}

void ExpertParallelMLP::State::forward(const ExpertsForward& call) {
  const ops::Busy busy(state_, kLayer);
  experts::check(call, desc_, placement_, {.rank = rank(), .world = world()});
  call_ = &call;
  const Tag tag = tag_of(call);
  if (!has_mailbox_) {
    const MailboxDesc desc = overlap::Exchange::mailbox_for(2, chunk_bytes(desc_));
    exchange_.use(state_.operator_mailbox(desc, desc, tag));
    has_mailbox_ = true;
  }
  poll_ = overlap::PollHook(call.poll);
  overlap::run_call(state_, tag, poll_, [&](const Tag& numbered) { run(numbered); });
  note_rows();
}

void ExpertParallelMLP::State::run(const Tag& tag) {
  exchange_.begin(tag);
  products_.begin(*call_);
  dispatch_.reset();
  return_.reset();
  gather_.reset();
  order_.sort(call_->ids, placement_);
  shards_.clear();
  for (int peer = 0; options_.replicated && peer < world(); ++peer)
    shards_.push_back(balanced_shard(static_cast<std::size_t>(call_->x.rows), peer, world()));
  results_.assign(static_cast<std::size_t>(own_rows() * desc_.top), nullptr);
  is_apart_.assign(static_cast<std::size_t>(groups()), false);
  if (options_.replicated) {
    find_replicated();
  } else {
    begin_dispatch();
    if (is_fused()) multiply_apart();
    wait([&] { return is_fused() ? dispatch_.flow().has_places() : dispatch_.done(); });
  }
  multiply_all();
  wait([&] { return return_.done() && (options_.replicated || dispatch_.done()); });
  combine();
  if (options_.replicated) gather();
}

// Copies the slot's row, and its weight behind it.
void ExpertParallelMLP::State::copy_row(std::int64_t slot, const TensorView& to,
                                        std::int64_t row) const {
  auto* const place = static_cast<std::byte*>(to.row(row));
  std::memcpy(place, call_->x.row(slot / desc_.top), static_cast<std::size_t>(shape_.x_bytes()));
  if (shape_.has_weight)
    std::memcpy(place + shape_.x_bytes(), &call_->weights[static_cast<std::size_t>(slot)],
                sizeof(float));
}

// Rows for other ranks leave from x itself, or, if weights travel behind them, from a copy.
void ExpertParallelMLP::State::find_outgoing() {
  std::int64_t slots = 0;
  for (const int peer : exchange_.peers()) slots += std::ssize(order_.slots(peer));
  TensorView weighted;
  if (shape_.has_weight) {
    tensor::make_room(weighted_memory_, static_cast<std::size_t>(slots * shape_.bytes()));
    weighted = weighted_memory_.view(Dtype::s8, slots, shape_.bytes());
  }
  dispatched_.rows = shape_.has_weight ? weighted : experts::as_bytes(call_->x);
  dispatched_.to_peers.assign(static_cast<std::size_t>(world()), {});
  std::int64_t row = 0;
  for (const int peer : exchange_.peers()) {
    RowBlock& block = dispatched_.to_peers[static_cast<std::size_t>(peer)];
    for (const std::int64_t slot : order_.slots(peer)) {
      if (shape_.has_weight) copy_row(slot, weighted, row);
      block.add(shape_.has_weight ? row : slot / desc_.top, 1);
      ++row;
    }
    for (std::int64_t group = 0; group < groups(); ++group)
      dispatched_.counts.counts(peer)[static_cast<std::size_t>(group)] = order_.count(peer, group);
  }
}

void ExpertParallelMLP::State::begin_dispatch() {
  find_outgoing();
  for (std::int64_t group = 0; group < groups(); ++group) {
    const std::int64_t count = order_.count(rank(), group);
    const bool is_apart = is_fused() && world() > 1 && count >= experts::kManyRows;
    is_apart_[static_cast<std::size_t>(group)] = is_apart;
    dispatched_.from.counts(rank())[static_cast<std::size_t>(group)] = is_apart ? 0 : count;
  }
  dispatch_.begin();
  step();
}

// This rank's own rows of experts that have many of them, while those of others are on their way.
void ExpertParallelMLP::State::multiply_apart() {
  experts::Work work = {.first_group = 0, .begin = 0, .end = 0, .counts = {}};
  for (std::int64_t group = 0; group < groups(); ++group) {
    const bool is_apart = is_apart_[static_cast<std::size_t>(group)];
    work.counts.push_back(is_apart ? order_.count(rank(), group) : 0);
    work.end += work.counts.back();
  }
  if (work.end == 0) return;
  work.counts.resize(placement_.experts_of(rank()).size());
  apart_.make(work.end);
  std::int64_t row = 0;
  for (std::int64_t group = 0; group < groups(); ++group) {
    if (!is_apart_[static_cast<std::size_t>(group)]) continue;
    for (const std::int64_t slot : order_.slots(rank(), group)) {
      copy_row(slot, apart_.bytes(), row);
      results_[static_cast<std::size_t>(slot)] = apart_.results().row(row++);
    }
  }
  multiply(apart_, work);
}

// All numbers of rows are known.
void ExpertParallelMLP::State::make_places() {
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
  if (rows > comm::kMostBytesOfRows / row_bytes(desc_, Dtype::f32)) {
    group.fail_and_raise({Code::mismatch, rank(),
                          base::sentence(kLayer, ": ", rows, " rows are for rank ", rank(),
                                         ", which no memory has room for")});
  }
  try {
    store_.make(rows);
  } catch (...) {
    group.fail_and_raise(comm::failure_of_caught(kLayer, rank()));
  }
  dispatched_.places = store_.bytes();
  progress_.begin(dispatched_.from, groups(), world());
  for (std::int64_t i = 0; i < groups(); ++i) {
    if (is_apart_[static_cast<std::size_t>(i)]) continue;
    std::int64_t row = progress_.first(i, rank());
    for (const std::int64_t slot : order_.slots(rank(), i)) {
      copy_row(slot, store_.bytes(), row);
      results_[static_cast<std::size_t>(slot)] = store_.results().row(row++);
    }
  }
  progress_.set_received(rank(), dispatched_.from.block(rank()).rows());
  begin_return();
}

// The rows of this rank's experts are here: those of a group by owner, since owners' rows follow
// one another.
void ExpertParallelMLP::State::find_replicated() {
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
  progress_.begin(dispatched_.from, groups(), world());
  std::int64_t row = 0;
  for (std::int64_t group = 0; group < groups(); ++group) {
    for (const std::int64_t slot : order_.slots(rank(), group)) {
      copy_row(slot, store_.bytes(), row);
      if (owner_of(slot) == rank())
        results_[static_cast<std::size_t>(slot - first_own() * desc_.top)] =
            store_.results().row(row);
      ++row;
    }
  }
  for (int peer = 0; peer < world(); ++peer)
    progress_.set_received(peer, dispatched_.from.block(peer).rows());
  begin_return();
}

// Results from other ranks go to the rows of their slots.
void ExpertParallelMLP::State::begin_return() {
  returned_.clear(world());
  returned_.from = experts::as_bytes(store_.results());
  const std::int64_t slots = own_rows() * desc_.top;
  const std::int64_t first = first_own() * desc_.top;
  std::int64_t rows = 0;
  for (const int peer : exchange_.peers()) {
    const auto index = static_cast<std::size_t>(peer);
    returned_.to_peers[index] = dispatched_.from.block(peer);
    RowBlock& block = returned_.from_peers[index];
    for (const std::int64_t slot : order_.slots(peer)) {
      if (slot >= first && slot < first + slots) block.add(rows++, 1);
    }
  }
  tensor::make_room(results_memory_, static_cast<std::size_t>(rows * row_bytes(desc_, desc_.wire)));
  const TensorView results = results_memory_.view(desc_.wire, rows, desc_.hidden);
  std::int64_t row = 0;
  for (const int peer : exchange_.peers()) {
    for (const std::int64_t slot : order_.slots(peer)) {
      if (slot >= first && slot < first + slots)
        results_[static_cast<std::size_t>(slot - first)] = results.row(row++);
    }
  }
  returned_.to = experts::as_bytes(results);
  return_.begin();
  return_.flow().hold();
}

void ExpertParallelMLP::State::multiply_all() {
  const std::int64_t all = store_.results().rows;
  const std::int64_t most = is_fused() ? std::max(kRowsOfARun, all / kRuns) : comm::kMostRows;
  experts::Work work;
  send_results();
  while (!progress_.done()) {
    std::uint64_t seen = ~std::uint64_t{0};
    wait([&] {
      if (exchange_.moves() == seen) return false;
      seen = exchange_.moves();
      for (const int peer : exchange_.peers()) {
        if (dispatch_.has_begun()) progress_.set_received(peer, dispatch_.flow().received(peer));
      }
      return progress_.find(most, work);
    });
    work.counts.resize(std::min(
        work.counts.size(),
        placement_.experts_of(rank()).size() - static_cast<std::size_t>(work.first_group)));
    multiply(store_, work);
    progress_.finish(work);
    send_results();
  }
}

void ExpertParallelMLP::State::multiply(const experts::RowStore& store, const experts::Work& work) {
  const ConstTensorView x = store.x().row_range(work.begin, work.end);
  const std::byte* weights = store.weights();
  if (weights != nullptr)
    weights += static_cast<std::size_t>(work.begin * x.row_stride) * size_of(x.dtype);
  products_.multiply({.first_group = work.first_group,
                      .counts = work.counts,
                      .x = x,
                      .weights = weights,
                      .out = store.results().row_range(work.begin, work.end)},
                     [&] { between_tiles(); });
}

void ExpertParallelMLP::State::send_results() {
  for (const int peer : exchange_.peers()) return_.flow().ready(peer, progress_.finished(peer));
  step();
}

void ExpertParallelMLP::State::combine() {
  const std::int64_t first = first_own();
  const TensorView out = call_->out.row_range(first, first + own_rows());
  const auto work = [&] {
    const auto bytes = static_cast<std::int64_t>(out.bytes());
    return comm::MemoryWork{.label = "combine",
                            .read = desc_.top * own_rows() * row_bytes(desc_, desc_.wire),
                            .written = bytes};
  };
  const Span span(state_.group().trace(), Lane::compute, "combine",
                  {.bytes = static_cast<std::int64_t>(out.bytes())});
  exchange_.run(work, [&] {
    experts::combine(
        {.results = results_,
         .dtype = desc_.wire,
         .weights = weighs_rows() ? nullptr : call_->weights.data() + first * desc_.top,
         .top = desc_.top},
        out, options_.threads);
  });
}

// The sums of each rank's rows go to all others.
void ExpertParallelMLP::State::gather() {
  gathered_.clear(world());
  const TensorView out = experts::as_bytes(call_->out);
  gathered_.from = out;
  gathered_.to = out;
  for (const int peer : exchange_.peers()) {
    const auto index = static_cast<std::size_t>(peer);
    gathered_.to_peers[index].add(first_own(), own_rows());
    gathered_.from_peers[index].add(static_cast<std::int64_t>(shards_[index].offset),
                                    static_cast<std::int64_t>(shards_[index].count));
  }
  gather_.begin();
  wait([&] { return gather_.done(); });
}

void ExpertParallelMLP::State::note_rows() {
  shown_.of_ranks.assign(static_cast<std::size_t>(world()), 0);
  shown_.of_experts.assign(placement_.experts_of(rank()).size(), 0);
  for (int peer = 0; peer < world(); ++peer) {
    for (std::size_t group = 0; group < shown_.of_experts.size(); ++group) {
      std::int64_t rows = progress_.count(static_cast<std::int64_t>(group), peer);
      if (peer == rank() && is_apart_[group])
        rows = order_.count(peer, static_cast<std::int64_t>(group));
      shown_.of_ranks[static_cast<std::size_t>(peer)] += rows;
      shown_.of_experts[group] += rows;
    }
  }
}

void ExpertParallelMLP::State::step() {
  dispatch_.step();
  return_.step();
  gather_.step();
}

void ExpertParallelMLP::State::between_tiles() {
  step();
  exchange_.between_tiles();
  poll_();
}

comm::Awaited ExpertParallelMLP::State::awaited() {
  if (dispatch_.has_begun() && !dispatch_.done()) return dispatch_.flow().awaited();
  if (return_.has_begun() && !return_.done()) return return_.flow().awaited();
  return gather_.has_begun() ? gather_.flow().awaited() : exchange_.nothing_awaited();
}

}  // namespace plait
