#include "gemm/quant_panels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "gemm/loops.h"
#include "quant/format.h"
#include "quant/scheme.h"

namespace plait::gemm {
namespace {

// The number of words that are packed of each column at once: a cache line of each row of the
// weight.
constexpr std::int64_t kWordsAtOnce = 16;

// A row of words, one of each column, becomes rows of the pairs of k that a word has in it.
template <class Pairs>
void split(const std::uint32_t* words, std::byte* to) {
  for (std::size_t part = 0; part < sizeof(*words) / sizeof(Pairs); ++part) {
    std::array<Pairs, kPanelColumns> row;  // NOLINT(*-member-init): written next
    for (std::size_t j = 0; j < row.size(); ++j)
      row[j] = static_cast<Pairs>(words[j] >> (8 * sizeof(Pairs) * part));
    std::memcpy(to + part * sizeof(row), row.data(), sizeof(row));
  }
}

// The place of the values of a part of a panel.
struct Source {
  const std::byte* first;  // the first column's row of the weight
  std::int64_t stride;     // bytes, to the next column
  std::int64_t columns;
  int bits;

  const std::byte* row(std::int64_t column) const { return first + column * stride; }
};

// k from `begin` on by whole words, as many as there are in `length`; returns how many k these are.
std::int64_t pack_words(const Source& source, std::int64_t begin, std::int64_t length,
                        std::byte* to) {
  if (begin * source.bits % 8 != 0) return 0;
  const std::int64_t words = length * source.bits / 32;
  alignas(64) std::array<std::uint32_t, kWordsAtOnce * kPanelColumns> turned = {};
  for (std::int64_t word = 0; word < words; word += kWordsAtOnce) {
    const std::int64_t count = std::min(kWordsAtOnce, words - word);
    const std::byte* from = source.first + begin * source.bits / 8 + word * 4;
    loops().transpose({from, source.stride, source.columns, count}, turned.data(), kPanelColumns,
                      Stores::cached);
    for (std::int64_t i = 0; i < count; ++i, to += std::int64_t{4} * kPanelColumns) {
      const std::uint32_t* row = turned.data() + i * kPanelColumns;
      if (source.bits == 8) {
        split<std::uint16_t>(row, to);
      } else {
        split<std::uint8_t>(row, to);
      }
    }
  }
  return words * 32 / source.bits;
}

// One value at k = `at` of a part that is zero there.
void put(int bits, std::int64_t at, std::int64_t column, int value, std::byte* to) {
  const std::int64_t pair = at / 2 * kPanelColumns + column;
  if (bits == 8) {
    to[2 * pair + at % 2] = static_cast<std::byte>(value);
  } else {
    to[pair] |= static_cast<std::byte>((value & 15) << (4 * (at % 2)));
  }
}

}  // namespace

Storage storage_of(const QuantScheme& scheme) {
  return scheme.bits == 8 ? Storage::s8 : Storage::s4;
}

Depth depth_of(const QuantScheme& scheme, std::int64_t k) {
  return {.k = k, .group = scheme.per == QuantPer::group ? scheme.group : 0};
}

Depth depth_of(const GemmDesc& desc) {
  return desc.quant ? depth_of(*desc.quant, desc.k) : Depth{.k = desc.k};
}

std::size_t packed_bytes(const GemmDesc& desc) {
  const auto panels = static_cast<std::size_t>(panels_of(desc.n));
  const std::int64_t k = depth_of(desc).padded();
  if (!desc.quant) return panels * panel_bytes(storage_of(desc.weight), k);
  const auto parts = static_cast<std::size_t>(quant::group_count(*desc.quant, desc.k));
  const std::size_t part_bytes = sizeof(float) + (desc.quant->offsets ? sizeof(std::int8_t) : 0);
  return panels * (panel_bytes(storage_of(*desc.quant), k) + parts * kPanelColumns * part_bytes);
}

void pack_panel(const QuantizedWeight& weight, const PanelPart& part, std::byte* to) {
  const int bits = weight.scheme().bits;
  const std::int64_t first = part.panel * kPanelColumns;
  const ConstTensorView values = weight.values();
  const Source source = {.first = static_cast<const std::byte*>(values.row(first)),
                         .stride = values.row_stride,
                         .columns = std::min<std::int64_t>(kPanelColumns, weight.n() - first),
                         .bits = bits};
  std::memset(to, 0, panel_bytes(storage_of(weight.scheme()), round_up(part.length, kKStep)));
  const quant::Format& format = quant::format_of(bits);
  for (std::int64_t k = pack_words(source, part.begin, part.length, to); k < part.length; ++k) {
    for (std::int64_t j = 0; j < source.columns; ++j) {
      const auto* row = reinterpret_cast<const std::int8_t*>(source.row(j));
      put(bits, k, j, format.value(row, part.begin + k), to);
    }
  }
}

}  // namespace plait::gemm
