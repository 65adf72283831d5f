// Only libxsmm's generator is linked (libxsmmgen), which turns a description into machine code in
// a buffer. The rest of libxsmm is a registry of such buffers, with settings from the environment,
// locks, an exit handler and a file in /tmp: the caller's process, which perhaps has another
// libxsmm, is better off without them.
//
// The generator writes the distance from row to row into the code, so rows come as tiles, where it
// is a constant. A function for few rows sums k in the order of the function for many as long as
// the panel is 64 columns wide; at 16 columns the generator would split the sum.
#include <libxsmm/libxsmm_main.h>
#include <libxsmm_generator.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/instruction_set.h"
#include "base/round_up.h"
#include "gemm/few_rows.h"
#include "gemm/l2_blocking.h"
#include "gemm/xsmm/code.h"
#include "gemm/xsmm/factory.h"

namespace plait::gemm::xsmm {
namespace {

constexpr int kGroup = 16;  // rows of a tile
constexpr int kMaxRows = 2 * kGroup;

// For all functions of a kernel, each from the start of a cache line; they take 57 and 140 KiB.
constexpr std::size_t kCodeBytes = 256 * 1024;
constexpr std::size_t kLine = 64;

// `steps`: how many times kKStep k there are.
using Function = void (*)(const std::byte* panel, const std::byte* rows, float* sums,
                          const unsigned long long* steps);

using base::InstructionSet;

// The least that a kernel of libxsmm's which sums as the others do can be made of.
InstructionSet needed(Dtype operand) {
  return operand == Dtype::bf16 ? InstructionSet::avx512_bf16 : InstructionSet::avx2;
}

// libxsmm's number for the best instruction set that it may use.
unsigned int instruction_set(Dtype operand) {
  if (operand == Dtype::bf16) return LIBXSMM_X86_AVX512_CPX;
  return base::may_use(InstructionSet::avx512) ? LIBXSMM_X86_AVX512_CORE : LIBXSMM_X86_AVX2;
}

// libxsmm stores matrices by columns. Its A is one step of the panel, 64 x 32, its B one step of X,
// 32 x rows, and its C the sums, 64 x rows; c1 and c2 are the ways to the next steps.
const libxsmm_gemm_descriptor* describe(libxsmm_descriptor_blob& blob, Dtype operand, int rows,
                                        bool first) {
  const bool pairs = operand == Dtype::bf16;
  const int flags = LIBXSMM_GEMM_FLAG_BATCH_REDUCE_STRIDE | (pairs ? LIBXSMM_GEMM_FLAG_VNNI_A : 0);
  libxsmm_gemm_descriptor* description = libxsmm_gemm_descriptor_dinit2(
      &blob, pairs ? LIBXSMM_GEMM_PRECISION_BF16 : LIBXSMM_GEMM_PRECISION_F32,
      LIBXSMM_GEMM_PRECISION_F32, kPanelColumns, rows, kKStep, kPanelColumns, kKStep, kPanelColumns,
      /*alpha=*/1, /*beta=*/first ? 0 : 1, flags, LIBXSMM_GEMM_PREFETCH_NONE);
  const std::size_t step = kKStep * size_of(operand);
  description->c1 = kPanelColumns * step;
  description->c2 = kGroup * step;
  return description;
}

// Returns what is left of the buffer behind the function.
std::span<std::byte> generate(std::span<std::byte> buffer, Dtype operand, int rows, bool first) {
  libxsmm_generated_code code = {};
  code.generated_code = buffer.data();
  code.buffer_size = static_cast<unsigned int>(buffer.size());
  code.code_type = 2;  // binary
  code.arch = instruction_set(operand);
  libxsmm_descriptor_blob blob;
  libxsmm_generator_gemm_kernel(&code, describe(blob, operand, rows, first));
  if (code.last_error != 0) {
    base::fail(Code::system, "libxsmm can't write a kernel for ", rows,
               " rows: ", libxsmm_strerror(code.last_error));
  }
  return buffer.subspan(base::round_up<std::size_t>(code.code_size, kLine));
}

class XsmmKernel final : public TileKernel {
 public:
  explicit XsmmKernel(Dtype operand) : operand_(operand), memory_(kCodeBytes) {
    std::span<std::byte> rest = memory_.bytes();
    for (int rows = 1; rows <= kGroup; ++rows) {
      for (const bool first : {false, true}) {
        functions_[rows - 1][first] = reinterpret_cast<Function>(rest.data());
        rest = generate(rest, operand, rows, first);
      }
    }
    if (!memory_.make_executable()) base::fail_errno("mprotect of generated code");
  }

  const char* name() const override { return "xsmm"; }
  Dtype operand() const override { return operand_; }
  RowForm row_form() const override { return RowForm::tiles; }
  int max_rows() const override { return kMaxRows; }

  // A block holds as much of a panel as the vector kernel's.
  Blocking blocking() const override {
    return fill_l2({.rows = kMaxRows, .panels = 4, .k = 1024 / element_bytes(), .few = 4},
                   operand_);
  }

  void multiply(const TileCall& call) const override {
    const unsigned long long steps = static_cast<unsigned long long>(call.k) / kKStep;
    for (int row = 0; row < call.row_count; row += kGroup) {
      const int rows = std::min(kGroup, call.row_count - row);
      functions_[rows - 1][call.first](call.panel, call.rows + row / kGroup * call.row_stride,
                                       call.sums + std::int64_t{row} * kPanelColumns, &steps);
    }
    // libxsmm's code leaves the upper halves of the vector registers in use, which slows down SSE.
    asm volatile("vzeroupper");
  }

  FewRows few_rows(Storage storage) const override {
    return operand_ == Dtype::f32 ? few_rows_in_sequence(storage) : few_rows_in_pairs(storage);
  }

 private:
  int element_bytes() const { return static_cast<int>(size_of(operand_)); }

  Dtype operand_;
  CodeMemory memory_;
  std::array<std::array<Function, 2>, kGroup> functions_ = {};  // [rows - 1][first]
};

}  // namespace

const char* refusal(Dtype operand) {
  if (operand == Dtype::f16 || operand == Dtype::s8) return "libxsmm multiplies f32 and bf16";
  if (const char* reason = base::refusal(needed(operand))) return reason;
  if (!CodeMemory::is_allowed()) return "this process may not create executable memory";
  return nullptr;
}

std::unique_ptr<TileKernel> create(Dtype operand) {
  if (const char* reason = refusal(operand)) base::fail(Code::invalid_argument, "xsmm: ", reason);
  return std::make_unique<XsmmKernel>(operand);
}

}  // namespace plait::gemm::xsmm
