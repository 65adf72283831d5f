#include "gemm/packed_input.h"

#include "base/check.h"
#include "gemm/product.h"

namespace plait {

PackedInput::PackedInput() : state_(std::make_unique<State>()) {}
PackedInput::PackedInput(PackedInput&&) noexcept = default;
PackedInput& PackedInput::operator=(PackedInput&&) noexcept = default;
PackedInput::~PackedInput() = default;

std::int64_t PackedInput::rows() const { return state_->row_count(); }
std::int64_t PackedInput::k() const { return state_->depth().k; }

void PackedInput::State::pack(const Input& x, const gemm::Depth& depth,
                              const gemm::TileKernel* kernel, int threads) {
  row_count_ = x.rows();
  depth_ = depth;
  form_ = gemm::form_of(kernel);
  rows_ = {};
  if (kernel == nullptr || gemm::can_read_in_place(x, depth, *kernel)) return;
  std::byte* to =
      gemm::Workspace::at_least(memory_, gemm::packed_rows_bytes(row_count_, depth, *kernel));
  rows_ = gemm::pack_rows(x, {0, row_count_}, depth, *kernel, {.to = to, .threads = threads});
}

void PackedInput::State::check(const Input& x, const gemm::Depth& depth,
                               const gemm::TileKernel* kernel) const {
  PLAIT_CHECK(row_count_ == x.rows() && depth_.k == x.k(), "matmul: packed_x has ", row_count_,
              " rows of k=", depth_.k, " but x has ", x.rows(), " of k=", x.k());
  PLAIT_CHECK(depth_ == depth && form_ == gemm::form_of(kernel),
              "matmul: packed_x was packed by a product of another backend or scheme");
}

}  // namespace plait
