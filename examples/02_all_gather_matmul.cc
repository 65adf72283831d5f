// Tokens are sharded over the ranks, and so are the outputs of two weights that take the same
// tokens. The tokens of other ranks arrive during the first product, and are kept for the second
// one.
//
//   plait run -n 2 -- 02_all_gather_matmul
#include <plait/plait.h>

#include <cstdint>
#include <cstdio>

namespace {

constexpr std::int64_t kTokens = 7;  // 4 and 3, with two ranks
constexpr std::int64_t kInputs = 512;
constexpr std::int64_t kOutputs = 128;  // of each rank

class Matrix {  // in bf16
 public:
  Matrix(std::int64_t rows, std::int64_t cols)
      : buffer_(plait::Buffer::for_tensor(plait::Dtype::bf16, rows, cols)),
        rows_(rows),
        cols_(cols) {}

  plait::Bf16* row(std::int64_t row) { return static_cast<plait::Bf16*>(view().row(row)); }
  plait::TensorView view() const { return buffer_.view(plait::Dtype::bf16, rows_, cols_); }

 private:
  plait::Buffer buffer_;
  std::int64_t rows_, cols_;
};

// Ranks have different outputs, and `seed` is different for each.
plait::PackedWeight make_weight(int seed) {
  Matrix w(kOutputs, kInputs);
  for (std::int64_t output = 0; output < kOutputs; ++output) {
    for (std::int64_t i = 0; i < kInputs; ++i)
      w.row(output)[i] = plait::Bf16(static_cast<float>((output + i + seed) % 3 - 1));
  }
  return plait::PackedWeight({.view = w.view(), .layout = plait::WeightLayout::out_in});
}

}  // namespace

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  const plait::Shard shard = plait::balanced_shard(kTokens, comm.rank(), comm.world());
  const auto first = static_cast<std::int64_t>(shard.offset);
  const auto count = static_cast<std::int64_t>(shard.count);
  const plait::PackedWeight up = make_weight(2 * comm.rank());
  const plait::PackedWeight gate = make_weight(2 * comm.rank() + 1);

  // An operator is prepared once and run for every batch, so that a call negotiates and allocates
  // nothing.
  plait::Op gather_and_multiply = plait::prepare({.op = plait::Operator::all_gather_matmul,
                                                  .m = kTokens,
                                                  .n = kOutputs,
                                                  .k = kInputs,
                                                  .weight = plait::Weight(up).kind(),
                                                  .gathered = true},
                                                 comm);

  Matrix x(count, kInputs);
  Matrix all(kTokens, kInputs);
  Matrix u(kTokens, kOutputs);
  Matrix g(kTokens, kOutputs);
  for (int batch = 0; batch < 2; ++batch) {
    for (std::int64_t token = 0; token < count; ++token) {
      for (std::int64_t i = 0; i < kInputs; ++i)
        x.row(token)[i] = plait::Bf16(static_cast<float>((i + batch) % (first + token + 2)));
    }
    gather_and_multiply.run({.x = x.view(), .weight = up, .out = u.view(), .gathered = all.view()});
    plait::matmul(all.view(), gate, g.view(), comm);  // already gathered, so no rank waits
    std::printf("batch %d: rank %d of %d brought tokens %d to %d, and made %g and %g of token %d\n",
                batch, comm.rank(), comm.world(), static_cast<int>(first),
                static_cast<int>(first + count - 1), static_cast<float>(u.row(kTokens - 1)[0]),
                static_cast<float>(g.row(kTokens - 1)[0]), static_cast<int>(kTokens - 1));
  }
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
