#include "overlap/cuda/runner.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "overlap/cuda/call_sizes.h"

namespace plait::overlap::cuda {
namespace {

bool is_on_gpu(const void* address) {
  cudaPointerAttributes found = {};
  const cudaError_t status = cudaPointerGetAttributes(&found, address);
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess && found.type == cudaMemoryTypeDevice;
}

class Call {
 public:
  Call(const DeviceProblem& problem, const DeviceOperands& operands, const DevicePlan& plan,
       DeviceRank rank, const DeviceMailbox& mailbox, unsigned int fingerprint, cudaStream_t stream)
      : problem_(problem),
        operands_(operands),
        plan_(plan),
        rank_(rank),
        mailbox_(mailbox),
        fingerprint_(fingerprint),
        stream_(stream),
        sizes_(sizes_of(problem, rank.world)),
        shards_{.m = problem.m, .world = rank.world} {}

  cudaError_t run() {
    if ((rank_.world > 1 || is_compute_first()) && !begins_itself()) begin();
    switch (problem_.op) {
      case DeviceOperator::matmul:
        product(alone(), plan_.share);
        break;
      case DeviceOperator::matmul_all_reduce:
      case DeviceOperator::matmul_reduce_scatter:
        compute_first();
        break;
      case DeviceOperator::all_gather_matmul:
        comm_first();
        break;
    }
    return status_;
  }

 private:
  bool is_compute_first() const {
    return problem_.op == DeviceOperator::matmul_all_reduce ||
           problem_.op == DeviceOperator::matmul_reduce_scatter;
  }

  // True if the call is one kernel, which also begins it.
  bool begins_itself() const {
    if (problem_.m == 0 || problem_.n == 0) return false;
    return plan_.schedule == DeviceSchedule::fused || rank_.world == 1;
  }

  // The first failure stands.
  void note(cudaError_t status) {
    if (status_ == cudaSuccess) status_ = status;
  }

  void begin() {
    CallArgs args = call_args();
    args.begins = true;
    note(launch_begin(args, stream_));
  }

  comm::cuda::Flag* flags_of(int rank) const {
    return reinterpret_cast<comm::cuda::Flag*>(mailbox_.base[rank]) + DeviceMailbox::kBegan;
  }
  char* slots_of(int rank) const { return mailbox_.base[rank] + bytes_of_flags(mailbox_.flags); }

  Matrices matrices(const void* first, const void* second, const void* own, long long own_stride,
                    long long gathered_stride) const {
    if (problem_.k == 0) return empty_matrices();
    return {.element = problem_.element,
            .layout = problem_.layout,
            .m = problem_.m,
            .n = problem_.n,
            .k = problem_.k,
            .rows_in_memory = problem_.m,
            .columns_in_memory = problem_.n,
            .x = {first, second, own},
            .x_stride = {gathered_stride, gathered_stride, own_stride},
            .weight = operands_.weight,
            .weight_stride = operands_.weight_stride};
  }

  // If k is 0, a few zeros are multiplied.
  Matrices empty_matrices() const {
    constexpr int kFew = 8;
    return {.element = problem_.element,
            .layout = Layout::out_in,
            .m = problem_.m,
            .n = problem_.n,
            .k = kFew,
            .rows_in_memory = 1,
            .columns_in_memory = 1,
            .x = {mailbox_.zeros, mailbox_.zeros, mailbox_.zeros},
            .x_stride = {kFew, kFew, kFew},
            .weight = mailbox_.zeros,
            .weight_stride = kFew};
  }

  CallArgs call_args() const {
    const int size = size_of_kind(problem_.out);
    const bool aligned = reinterpret_cast<unsigned long long>(operands_.out) % 16 == 0 &&
                         operands_.out_stride * size % 16 == 0;
    CallArgs args = {.shards = shards_,
                     .rank = rank_.rank,
                     .begins = begins_itself(),
                     .counters = mailbox_.counters,
                     .began = {},
                     .n = problem_.n,
                     .order = {.units = 0, .columns = 0},
                     .fingerprint = fingerprint_,
                     .waits = mailbox_.waits,
                     .link = mailbox_.link,
                     .out_kind = problem_.out,
                     .out = {.data = static_cast<char*>(operands_.out),
                             .stride = operands_.out_stride * size,
                             .n = problem_.n,
                             .aligned = aligned},
                     .bias = operands_.bias};
    for (int r = 0; r < rank_.world; ++r)
      args.began[r] = reinterpret_cast<comm::cuda::Flag*>(mailbox_.base[r]);
    return args;
  }

  int clusters() const {
    int device = 0;
    int multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    return std::min(plan_.share.blocks, multiprocessors) / (kUnitRows / kTileRows);
  }

  // The order of tiles of a width that suits the whole product.
  void order_comm_first(CommFirstArgs& args) const {
    const int units = ceil_div(problem_.m, kUnitRows);
    args.width = tile_width(units, problem_.n, clusters());
    args.call.order = comm_first_order(args.call.shards, args.call.rank, kUnitRows,
                                       ceil_div(problem_.n, args.width));
  }

  // A product whose rows are all this rank's own.
  CommFirstArgs alone() const {
    CommFirstArgs args = {.call = call_args(),
                          .x = nullptr,
                          .x_stride = 0,
                          .row_bytes = 0,
                          .pushes = false,
                          .pushes_to_self = false,
                          .reads_own = true,
                          .piece_rows = 1,
                          .gathered = {},
                          .width = 0};
    args.call.shards = {.m = problem_.m, .world = 1};
    args.call.rank = 0;
    args.call.begins = false;
    args.call.waits.epoch = nullptr;
    order_comm_first(args);
    args.call.order.group = 8;
    return args;
  }

  void product(const CommFirstArgs& args, const Share& share) {
    const Matrices all =
        matrices(operands_.x, operands_.x, operands_.x, operands_.x_stride, operands_.x_stride);
    note(launch_comm_first(all, share, args, stream_));
  }

  // Slots begin with the partial sums; finished rows follow.
  ComputeFirstArgs compute_first_args() const {
    ComputeFirstArgs args = {};
    args.call = call_args();
    args.call.order = compute_first_order(shards_, rank_.rank, kUnitRows, sizes_.tile_columns);
    args.own_begin = shards_.begin(rank_.rank);
    args.own_end = shards_.end(rank_.rank);
    args.tile_columns = sizes_.tile_columns;
    args.wire = problem_.wire;
    args.finishes = true;
    args.claims = true;
    args.spreads = problem_.op == DeviceOperator::matmul_all_reduce && rank_.world > 1;
    const int source_flags = sizes_.tiles_per_source;
    const long long source_bytes = sizes_.tiles_per_source * sizes_.tile_bytes;
    args.sums.parity_bytes = mailbox_.bytes;
    args.sums.parity_flags = static_cast<int>(mailbox_.flags);
    args.results = args.sums;
    // Partial sums of one place lie side by side.
    args.sums.place_bytes = rank_.world * sizes_.tile_bytes;
    args.sums.source_bytes = sizes_.tile_bytes;
    args.sums.place_flags = rank_.world;
    args.sums.source_flags = 1;
    args.results.place_flags = 1;
    args.results.source_flags = source_flags * kMostPieces;
    args.results_stride = sizes_.results_stride;
    for (int r = 0; r < rank_.world; ++r) {
      args.sums.data[r] = slots_of(r);
      args.sums.flags[r] = flags_of(r);
      args.results.data[r] = slots_of(r) + rank_.world * source_bytes;
      args.results.flags[r] = flags_of(r) + static_cast<long long>(rank_.world) * source_flags;
    }
    return args;
  }

  // The work of the warps that add up and fetch, in the call's order of columns.
  WorkOrder work_of(const ComputeFirstArgs& args) const {
    constexpr int kWarps = 10;  // of a block
    return work_order(shards_, rank_.rank, kTileRows, args.call.order,
                      {.spreads = args.spreads,
                       .wire_vectors = size_of_kind(args.wire) / 2,
                       .warps = clusters() * (kUnitRows / kTileRows) * kWarps});
  }

  // All tiles go to this rank's own memory instead, each to a place of its own.
  ComputeFirstArgs staging_args(const ComputeFirstArgs& whole) const {
    ComputeFirstArgs args = whole;
    args.finishes = false;
    args.spreads = false;
    args.sums = {};
    args.sums.place_bytes = sizes_.tile_bytes;
    for (int r = 0; r < rank_.world; ++r) {
      const int first_tile = shards_.begin(r) / kTileRows;
      args.sums.data[r] = mailbox_.staged + static_cast<long long>(first_tile) *
                                                sizes_.tile_columns * sizes_.tile_bytes;
    }
    return args;
  }

  void compute_first() {
    ComputeFirstArgs whole = compute_first_args();
    whole.work = work_of(whole);
    const Matrices all =
        matrices(operands_.x, operands_.x, operands_.x, operands_.x_stride, operands_.x_stride);
    if (plan_.schedule == DeviceSchedule::fused || rank_.world == 1) {
      note(launch_compute_first(all, plan_.share, whole, stream_));
      return;
    }
    const bool cut = plan_.schedule == DeviceSchedule::pipelined && plan_.share.blocks >= 4;
    const int parts = cut ? std::clamp(plan_.parts, 1, std::max(sizes_.tile_columns, 1)) : 1;
    const auto [product_share, beside] = shares_of(parts);
    cudaStream_t side = parts > 1 ? mailbox_.side : stream_;
    for (int part = 0; part < parts; ++part) {
      ComputeFirstArgs args = whole;
      args.claims = false;
      args.call.order.first_column = sizes_.tile_columns * part / parts;
      args.call.order.columns =
          sizes_.tile_columns * (part + 1) / parts - args.call.order.first_column;
      args.call.order.column_group = args.call.order.columns;
      args.work = work_of(args);
      note(launch_compute_first(all, product_share, staging_args(args), stream_));
      follow(stream_, side, mailbox_.fork);
      note(launch_exchange(all, beside, args, mailbox_.staged, side));
      note(launch_work(all, beside, args, side));
    }
    follow(side, stream_, mailbox_.join);
  }

  // If a product is cut in parts, the work beside it gets a quarter of the blocks. With very few
  // blocks the product stays whole, because it needs a cluster.
  struct Shares {
    Share product;
    Share beside;
  };
  Shares shares_of(int parts) const {
    if (parts == 1) return {plan_.share, plan_.share};
    const int beside = std::max(plan_.share.blocks / 4, 1);
    return {{.blocks = plan_.share.blocks - beside}, {.blocks = beside}};
  }

  // Makes later work in `after` wait for all work that is queued in `before`.
  void follow(cudaStream_t before, cudaStream_t after, cudaEvent_t event) {
    if (before == after) return;
    note(cudaEventRecord(event, before));
    note(cudaStreamWaitEvent(after, event, 0));
  }

  void comm_first() {
    if (rank_.world == 1) {
      product(alone(), plan_.share);
      gather_alone();
      return;
    }
    CommFirstArgs args = {.call = call_args(),
                          .x = static_cast<const char*>(operands_.x),
                          .x_stride = operands_.x_stride * 2,
                          .row_bytes = problem_.k * 2,
                          .pushes = true,
                          .pushes_to_self = true,
                          .reads_own = false,
                          .piece_rows = sizes_.piece_rows,
                          .gathered = {},
                          .width = 0};
    order_comm_first(args);
    if (plan_.group > 0) {
      args.call.order.group = plan_.group;
    } else {
      multiply_as_rows_arrive(args.call.order);
    }
    args.gathered.place_flags = 1;
    args.gathered.source_flags = sizes_.pieces;
    args.gathered.parity_flags = static_cast<int>(mailbox_.flags);
    args.gathered.parity_bytes = mailbox_.bytes;
    for (int r = 0; r < rank_.world; ++r) {
      args.gathered.data[r] = slots_of(r);
      args.gathered.flags[r] = flags_of(r);
    }
    const char* even = slots_of(rank_.rank);
    const char* odd = even + args.gathered.parity_bytes;
    // The address at which the whole matrix would begin if the rank's rows were a part of it. A
    // tensor map may not begin outside the GPU's memory: there the rows are read as they were
    // gathered.
    const char* begin = args.x - shards_.begin(rank_.rank) * args.x_stride;
    args.reads_own = is_on_gpu(begin);
    args.pushes_to_self =
        operands_.gathered != nullptr || !args.reads_own || shares_tiles(rank_.rank);
    const char* own = args.reads_own ? begin : even;
    const Matrices all =
        matrices(even, odd, own, args.reads_own ? operands_.x_stride : problem_.k, problem_.k);
    // Even a rank that has nothing to multiply has rows to send.
    if (plan_.schedule == DeviceSchedule::fused && args.call.order.count() > 0) {
      note(launch_comm_first(all, plan_.share, args, stream_));
    } else {
      comm_first_by_steps(all, args);
    }
    if (operands_.gathered != nullptr)
      note(launch_copy_gathered(all, args, static_cast<char*>(operands_.gathered),
                                operands_.gathered_stride * 2, stream_));
  }

  // With short runs the product waits less for rows, but reads the weight more often: the last
  // units are taken as they arrive, one of each peer, and those before them in longer runs.
  static void multiply_as_rows_arrive(TileOrder& order) {
    order.late = 2 * order.turns;
    order.late_group = order.turns;
    constexpr int kFew = 4;
    order.group = order.turns < kFew ? kFew / order.turns * order.turns : order.turns;
  }

  // True if a tile has rows of this rank and of others.
  bool shares_tiles(int rank) const {
    const int end = shards_.end(rank);
    return shards_.begin(rank) % kTileRows != 0 || (end % kTileRows != 0 && end != problem_.m);
  }

  void gather_alone() {
    if (operands_.gathered == nullptr) return;
    const auto row_bytes = static_cast<std::size_t>(problem_.k) * 2;
    note(cudaMemcpy2DAsync(
        operands_.gathered, static_cast<std::size_t>(operands_.gathered_stride) * 2, operands_.x,
        static_cast<std::size_t>(operands_.x_stride) * 2, row_bytes,
        static_cast<std::size_t>(problem_.m), cudaMemcpyDeviceToDevice, stream_));
  }

  void comm_first_by_steps(const Matrices& all, const CommFirstArgs& whole) {
    const bool cut = plan_.schedule == DeviceSchedule::pipelined && plan_.share.blocks >= 4;
    const int units = whole.call.order.units;
    const int parts = cut ? std::clamp(plan_.parts, 1, std::max(units, 1)) : 1;
    const auto [product_share, beside] = shares_of(parts);
    cudaStream_t side = parts > 1 ? mailbox_.side : stream_;
    follow(stream_, side, mailbox_.fork);
    note(launch_push(beside, whole, side));
    for (int part = 0; part < parts && units > 0; ++part) {
      CommFirstArgs args = whole;
      const int begin = units * part / parts;
      args.pushes = false;
      args.call.order.skipped = begin;
      args.call.order.taken = units * (part + 1) / parts - begin;
      note(launch_wait_for_rows(args, stream_));
      note(launch_comm_first(all, product_share, args, stream_));
    }
    follow(side, stream_, mailbox_.join);
  }

  const DeviceProblem& problem_;
  const DeviceOperands& operands_;
  const DevicePlan& plan_;
  DeviceRank rank_;
  const DeviceMailbox& mailbox_;
  unsigned int fingerprint_;
  cudaStream_t stream_;
  CallSizes sizes_;
  Shards shards_;
  cudaError_t status_ = cudaSuccess;
};

}  // namespace

cudaError_t run(const DeviceProblem& problem, const DeviceOperands& operands,
                const DevicePlan& plan, DeviceRank rank, const DeviceMailbox& mailbox,
                unsigned int fingerprint, cudaStream_t stream) {
  return Call(problem, operands, plan, rank, mailbox, fingerprint, stream).run();
}

}  // namespace plait::overlap::cuda
