#include "plait/packed_weight.h"

#include <nanobind/stl/optional.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "named.h"
#include "native.h"
#include "plait/error.h"
#include "tensor.h"

namespace plait::python {
namespace {

// Sums of words, and sums of these sums, by which a word also counts for its place: so that values
// which change places are noticed. As fast as memory is read.
class Fingerprint {
 public:
  void add(const std::byte* from, std::size_t bytes) {
    const std::size_t whole = bytes / sizeof(Words) * sizeof(Words);
    has_avx2() ? add_by_avx2(from, whole) : add_whole(from, whole);
    if (whole == bytes) return;
    alignas(Words) std::array<std::byte, sizeof(Words)> rest = {};
    std::memcpy(rest.data(), from + whole, bytes - whole);
    add_whole(rest.data(), rest.size());
  }

  std::uint64_t value() const {
    std::uint64_t all = 0;
    for (const Words& one : {sums_, placed_}) {
      for (const std::uint64_t word : one) {
        all = (all ^ word) * 0x9E3779B97F4A7C15;  // odd: no bit of a word is lost
        all ^= all >> 32;
      }
    }
    return all;
  }

 private:
  using Words = std::array<std::uint64_t, 16>;

#if defined(__x86_64__)
  static bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
  __attribute__((target("avx2"))) void add_by_avx2(const std::byte* from, std::size_t bytes) {
    add_whole(from, bytes);
  }
#else
  static bool has_avx2() { return false; }
  void add_by_avx2(const std::byte* from, std::size_t bytes) { add_whole(from, bytes); }
#endif

  // Adds `bytes` bytes, which must be a whole number of Words.
  [[gnu::always_inline]] void add_whole(const std::byte* from, std::size_t bytes) {
    using Four [[gnu::vector_size(32)]] = std::uint64_t;
    constexpr std::size_t kFours = sizeof(Words) / sizeof(Four);
    std::array<Four, kFours> sums;
    std::array<Four, kFours> placed;
    std::memcpy(sums.data(), sums_.data(), sizeof(Words));
    std::memcpy(placed.data(), placed_.data(), sizeof(Words));
    for (const std::byte* const end = from + bytes; from != end; from += sizeof(Words)) {
      for (std::size_t i = 0; i < kFours; ++i) {
        Four words;
        std::memcpy(&words, from + i * sizeof(Four), sizeof(Four));
        sums[i] += words;
        placed[i] += sums[i];
      }
    }
    std::memcpy(sums_.data(), sums.data(), sizeof(Words));
    std::memcpy(placed_.data(), placed.data(), sizeof(Words));
  }

  Words sums_ = {};
  Words placed_ = {};
};

std::uint64_t fingerprint(const WeightView& weight) {
  const ConstTensorView& rows = weight.view;
  if (rows.device != kCpu) {
    throw Error(Code::invalid_argument,
                "_fingerprint: weight is on " + name(rows.device) + ", and it is read on the CPU");
  }
  return unlocked([&] {
    Fingerprint all;
    if (rows.is_contiguous()) {
      all.add(static_cast<const std::byte*>(rows.data), rows.bytes());
    } else {
      for (std::int64_t row = 0; row < rows.rows; ++row)
        all.add(static_cast<const std::byte*>(rows.row(row)), rows.row_bytes());
    }
    return all.value();
  });
}

void pack(PackedWeight* self, GivenArray weight, Named<WeightLayout> layout, int threads) {
  const WeightView view{.view = const_matrix(weight, {"PackedWeight", "weight"}), .layout = layout};
  unlocked([&] { new (self) PackedWeight(view, threads); });
}

void pack_view(PackedWeight* self, const WeightView& view, int threads) {
  unlocked([&] { new (self) PackedWeight(view, threads); });
}

void pack_quantized(PackedWeight* self, const QuantizedWeight& weight, int threads) {
  unlocked([&] { new (self) PackedWeight(weight, threads); });
}

}  // namespace

void bind_packed_weight(nb::module_& m) {
  nb::class_<PackedWeight>(m, "PackedWeight",
                           "A weight made ready for many products: a copy in panels. Any product\n"
                           "takes it.")
      .def("__init__", &pack_quantized, nb::arg("weight"), nb::kw_only(), nb::arg("threads") = 0)
      .def("__init__", &pack_view, nb::arg("weight"), nb::kw_only(), nb::arg("threads") = 0)
      .def("__init__", &pack, nb::arg("weight"), nb::kw_only(), nb::arg("layout"),
           nb::arg("threads") = 0)
      .def(
          "repack",
          [](PackedWeight& self, const WeightView& weight, int threads) {
            unlocked([&] { self.repack(weight, threads); });
          },
          nb::arg("weight"), nb::kw_only(), nb::arg("threads") = 0,
          "Pack a weight of the same sizes and dtype into the same memory.")
      .def_prop_ro("dtype", &PackedWeight::dtype, "s8 where it is quantised, with 4 bits too.")
      .def_prop_ro("scheme", &PackedWeight::scheme)
      .def_prop_ro("n", &PackedWeight::n)
      .def_prop_ro("k", &PackedWeight::k)
      .def_prop_ro("bytes", &PackedWeight::bytes, "The bytes of memory that a product reads.");
  m.def("_fingerprint", &fingerprint, nb::arg("weight"),
        "A number that changes with the elements of a weight, and with their places.");
}

}  // namespace plait::python
