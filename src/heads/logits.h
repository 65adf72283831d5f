// The logits of a rank's share, block by block: a product whose results are used while they are in
// a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "comm/core/executor.h"
#include "plait/buffer.h"
#include "plait/communicator.h"
#include "plait/gemm.h"
#include "plait/vocabulary.h"

namespace plait::heads {

// Blocks and windows of columns are multiples of a product's panels.
inline constexpr std::int64_t kPanel = 64;

// Logits of one row, of columns that follow one another.
struct LogitRow {
  int thread;
  std::int64_t row;
  std::int64_t first_column;
  const float* values;
  std::int64_t count;
};

class Logits {
 public:
  // The communicator's, with the memory of its calls before.
  static Logits& of(Communicator& comm);

  struct Product {
    const ConstTensorView& x;
    const Weight& weight;
    std::int64_t columns;  // the first ones, of which there are logits
    TensorView keep = {};  // receives them all; no data: they are not wanted
  };

  // Calls use(row) for all rows of each block of columns. Threads share the blocks; each calls it
  // for its own. An executor that takes products makes no logits: there are no calls then.
  using Use = base::FunctionRef<void(const LogitRow& row)>;
  void run(const Product& product, const VocabularyOptions& options, Use use);

  // How many of the threads get blocks; at least 1.
  static int workers(std::int64_t rows, std::int64_t columns, int threads);

 private:
  struct Worker {
    Gemm gemm;
    Buffer block;
    std::vector<float> row;  // in f32, if the block is not
  };

  void prepare(const GemmDesc& desc, const std::string& backend, std::size_t workers);
  static void use_block(Worker& worker, const ConstTensorView& block, LogitRow row, Use use);

  const comm::Group* group_ = nullptr;
  std::optional<GemmDesc> desc_;
  std::string backend_;
  std::vector<Worker> workers_;
  PackedInput packed_;
};

// The description of the product whose results are the logits.
GemmDesc logits_of(const ConstTensorView& x, const Weight& weight, Dtype logits);

// A product of so many rows and columns, for an executor.
comm::ProductWork work_of(const GemmDesc& desc, std::int64_t rows, std::int64_t columns);

}  // namespace plait::heads
