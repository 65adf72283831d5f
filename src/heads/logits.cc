#include "heads/logits.h"

#include <algorithm>
#include <atomic>
#include <typeinfo>

#include "base/parallel.h"
#include "comm/session/state.h"

namespace plait::heads {
namespace {

// A block has so many logits, which stay in the second cache, within these numbers of columns.
// Fewer would have rows of X read too often; with more, threads would share few rows unevenly.
constexpr std::int64_t kBlock = 256 * 1024;
constexpr std::int64_t kFewest = 128;
constexpr std::int64_t kMost = 16384;

std::int64_t columns_of_block(std::int64_t rows, std::int64_t columns, int threads) {
  const std::int64_t each = (columns + threads - 1) / threads;
  const std::int64_t wanted = std::clamp(std::min(kBlock / rows, each), kFewest, kMost);
  return (wanted + kPanel - 1) / kPanel * kPanel;
}

}  // namespace

GemmDesc logits_of(const ConstTensorView& x, const Weight& weight, Dtype logits) {
  GemmDesc desc = {.m = x.rows,
                   .n = weight.n(),
                   .k = weight.k(),
                   .x = x.dtype,
                   .out = logits,
                   .quant = weight.scheme()};
  if (!desc.quant) desc.weight = weight.dtype();
  return desc;
}

comm::ProductWork work_of(const GemmDesc& desc, std::int64_t rows, std::int64_t columns) {
  return {.rows = rows,
          .columns = columns,
          .k = desc.k,
          .x_bytes = static_cast<double>(size_of(desc.x)),
          .weight_bytes =
              desc.quant ? desc.quant->bits / 8.0 : static_cast<double>(size_of(desc.weight)),
          .out_bytes = static_cast<double>(size_of(desc.out)),
          .poll = 0};
}

Logits& Logits::of(Communicator& comm) {
  std::shared_ptr<void>& kept = comm.state().kept(typeid(Logits));
  if (kept == nullptr) kept = std::make_shared<Logits>();
  auto& logits = *static_cast<Logits*>(kept.get());
  logits.group_ = &comm.state().group();
  return logits;
}

void Logits::prepare(const GemmDesc& desc, const std::string& backend, std::size_t workers) {
  GemmDesc of_any_rows = desc;
  of_any_rows.m = 0;
  if (desc_ != of_any_rows || backend_ != backend) {
    workers_.clear();
    desc_ = of_any_rows;
    backend_ = backend;
  }
  while (workers_.size() < workers)
    workers_.push_back(
        {.gemm = select_gemm(desc, {.backend = backend, .threads = 1}), .block = {}, .row = {}});
}

int Logits::workers(std::int64_t rows, std::int64_t columns, int threads) {
  const int most = base::thread_count(threads);
  if (rows == 0 || columns == 0) return 1;
  const std::int64_t width = columns_of_block(rows, columns, most);
  return static_cast<int>(std::min<std::int64_t>(most, (columns + width - 1) / width));
}

void Logits::run(const Product& product, const VocabularyOptions& options, Use use) {
  const auto& [x, weight, columns, keep] = product;
  const int threads = base::thread_count(options.threads);
  const GemmDesc desc = logits_of(x, weight, options.logits);
  prepare(desc, options.backend, 1);
  if (x.rows == 0 || columns == 0) return;
  if (comm::Executor* const executor = comm::product_executor(*group_))
    return executor->multiply(work_of(desc, x.rows, columns), [] {});
  const std::int64_t width = columns_of_block(x.rows, columns, threads);
  const int count = workers(x.rows, columns, options.threads);
  prepare(desc, options.backend, static_cast<std::size_t>(count));
  const std::size_t bytes =
      keep.data != nullptr ? 0 : static_cast<std::size_t>(x.rows * width) * size_of(options.logits);
  for (Worker& worker : workers_) {
    if (worker.block.bytes() < bytes) worker.block = Buffer(bytes);
    worker.row.resize(static_cast<std::size_t>(width));
  }
  workers_.front().gemm.pack({.view = x}, packed_);
  // Relaxed: the counter only hands out numbers, and the flag only saves work.
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  base::on_threads(count, [&](int thread) {
    Worker& worker = workers_[static_cast<std::size_t>(thread)];
    try {
      while (!failed.load(std::memory_order_relaxed)) {
        const std::int64_t first = next.fetch_add(1, std::memory_order_relaxed) * width;
        if (first >= columns) break;
        const std::int64_t end = std::min(first + width, columns);
        const TensorView block = keep.data != nullptr
                                     ? keep.column_range(first, end)
                                     : worker.block.view(options.logits, x.rows, end - first);
        worker.gemm.run({.x = {.view = x},
                         .weight = weight,
                         .out = block,
                         .window = {.columns = {first, end}},
                         .packed_x = &packed_});
        use_block(worker, block,
                  {.thread = thread,
                   .row = 0,
                   .first_column = first,
                   .values = nullptr,
                   .count = end - first},
                  use);
      }
    } catch (...) {
      failed.store(true, std::memory_order_relaxed);
      throw;
    }
  });
}

void Logits::use_block(Worker& worker, const ConstTensorView& block, LogitRow row, Use use) {
  for (; row.row < block.rows; ++row.row) {
    if (block.dtype == Dtype::f32) {
      row.values = static_cast<const float*>(block.row(row.row));
    } else {
      convert(block.row(row.row), block.dtype, worker.row.data(), Dtype::f32,
              static_cast<std::size_t>(row.count));
      row.values = worker.row.data();
    }
    use(row);
  }
}

}  // namespace plait::heads
