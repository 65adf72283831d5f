// Every kernel, for the tests of what all of them promise.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gemm/amx/factory.h"
#include "gemm/kernel.h"
#include "gemm/vector/sets.h"

namespace plait::gemm {

inline float fused(float sum, float x, float w) { return std::fma(x, w, sum); }
inline float rounded(float sum, float x, float w) { return sum + x * w; }

struct Maker {
  std::string name;
  std::function<const char*()> refusal;
  std::function<std::unique_ptr<TileKernel>()> create;
  Dtype operand;
  // How the next product is added to an element's sum, where it is one after another.
  float (*add)(float sum, float x, float w) = nullptr;
  // The order is that of instructions for pairs of bf16: the odd k comes first, and denormals are
  // 0.
  bool pairs = false;
  // The order is that of Arm's instruction for matrices.
  bool matrices = false;
};

inline std::ostream& operator<<(std::ostream& out, const Maker& maker) { return out << maker.name; }

inline std::vector<Maker> kernels() {
  std::vector<Maker> all = {
      {.name = "amx",
       .refusal = [] { return amx::refusal(Dtype::bf16); },
       .create = [] { return amx::create(Dtype::bf16); },
       .operand = Dtype::bf16},
  };
  for (const vector::Set& set : vector::sets()) {
    std::string name = set.name;
    std::replace(name.begin(), name.end(), '-', '_');
    all.push_back({.name = name,
                   .refusal = [set] { return base::refusal(set.needs); },
                   .create = [set] { return vector::create(set); },
                   .operand = set.operand,
                   .add = set.fused ? fused : rounded,
                   .pairs = set.needs == base::InstructionSet::avx512_bf16,
                   .matrices = set.needs == base::InstructionSet::neon_bfmmla});
    if (all.back().matrices) all.back().add = nullptr;
  }
  return all;
}

// Memory whose end is the end of what may be read or written.
class Fenced {
 public:
  explicit Fenced(std::size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    void* memory =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(memory);
    end_ = start_ + mapped_ - page;
    mprotect(end_, page, PROT_NONE);
  }
  ~Fenced() {
    if (mapped_ > 0) munmap(start_, mapped_);
  }
  Fenced(Fenced&& other) noexcept
      : bytes_(other.bytes_),
        mapped_(std::exchange(other.mapped_, 0)),
        start_(other.start_),
        end_(other.end_) {}
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  std::byte* data() const { return end_ - bytes_; }

 private:
  std::size_t bytes_;
  std::size_t mapped_;
  std::byte* start_;
  std::byte* end_;
};

}  // namespace plait::gemm
