#include "gemm/packed_input.h"

#include "base/check.h"
#include "gemm/product.h"

namespace plait {

PackedInput::PackedInput() : state_(std::make_unique<State>()) {}
PackedInput::PackedInput(PackedInput&&) noexcept = default;
PackedInput& PackedInput::operator=(PackedInput&&) noexcept = default;
PackedInput::~PackedInput() = default;

std::int64_t PackedInput::rows() const { return state_ == nullptr ? 0 : state_->row_count(); }
std::int64_t PackedInput::k() const { return state_ == nullptr ? 0 : state_->depth().k; }

std::size_t PackedInput::held_bytes() const { return state_ == nullptr ? 0 : state_->held_bytes(); }

PackedInput::State& PackedInput::state() const {
  PLAIT_CHECK(state_ != nullptr, "matmul: packed_x has been moved to another PackedInput");
  return *state_;
}

namespace {

// The stride of a single row says nothing, nor does the place of no elements.
bool are_same_elements(const GemmInput& a, const GemmInput& b) {
  const ConstTensorView& one = a.view;
  const ConstTensorView& other = b.view;
  if (a.transposed != b.transposed || one.dtype != other.dtype) return false;
  if (one.bytes() == 0) return true;
  return one.data == other.data && (one.rows == 1 || one.row_stride == other.row_stride);
}

// "the bf16 matrix at 0x7f0c30, row stride 64, transposed"
std::string description_of(const GemmInput& x) {
  return base::sentence("the ", name(x.view.dtype), " matrix at ", x.view.data, ", row stride ",
                        x.view.row_stride, x.transposed ? ", transposed" : "");
}

}  // namespace

void PackedInput::State::pack(const GemmInput& x, const gemm::Depth& depth,
                              const gemm::TileKernel* kernel, int threads) {
  x_ = x;
  depth_ = depth;
  form_ = gemm::form_of(kernel);
  rows_ = {};
  if (kernel == nullptr || gemm::can_read_in_place(x, depth, *kernel)) return;
  std::byte* to =
      gemm::Workspace::at_least(memory_, gemm::packed_rows_bytes(x.rows(), depth, *kernel));
  rows_ = gemm::pack_rows(x, {0, x.rows()}, depth, *kernel, {.to = to, .threads = threads});
}

void PackedInput::State::check(const GemmInput& x, const gemm::Depth& depth,
                               const gemm::TileKernel* kernel) const {
  PLAIT_CHECK(x_.rows() == x.rows() && depth_.k == x.k(), "matmul: packed_x has ", x_.rows(),
              " rows of k=", depth_.k, " but x has ", x.rows(), " of k=", x.k());
  PLAIT_CHECK(are_same_elements(x_, x), "matmul: packed_x was made of ", description_of(x_),
              ", but x is ", description_of(x));
  PLAIT_CHECK(depth_ == depth && form_ == gemm::form_of(kernel),
              "matmul: packed_x was packed by a product of another backend or scheme");
}

}  // namespace plait
