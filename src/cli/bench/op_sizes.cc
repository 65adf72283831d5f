#include "cli/bench/op_sizes.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "cli/values.h"
#include "plait/quantized.h"

namespace plait::cli {
namespace {

std::vector<std::int64_t> read_sizes(const std::string& option, const std::string& text) {
  PLAIT_CHECK(!text.empty(), "which problem? ", option,
              " is missing; --m, --n and --k say it, or "
              "--shapes FILE");
  std::vector<std::int64_t> sizes;
  for (const std::string& item : read_list(option, text))
    sizes.push_back(read_number(option, item, 1, kLargestSize));
  return sizes;
}

std::vector<OpSize> read_shapes_file(const std::string& path) {
  std::ifstream file(path);
  PLAIT_CHECK(file.is_open(), "--shapes ", path, " can't be read");
  std::vector<OpSize> sizes;
  std::string line;
  while (std::getline(file, line)) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::vector<std::int64_t> numbers;
    std::string word;
    while (words >> word) numbers.push_back(read_number("--shapes", word, 1, kLargestSize));
    if (numbers.empty()) continue;
    PLAIT_CHECK(numbers.size() == 3, "--shapes ", path, ": \"", line, "\" is not m n k");
    sizes.push_back({numbers[0], numbers[1], numbers[2]});
  }
  PLAIT_CHECK(!sizes.empty(), "--shapes ", path, " has no line of m n k");
  return sizes;
}

}  // namespace

// As many sizes as the longest list; one of length one goes with all.
std::vector<OpSize> read_problem(const SizeWishes& wishes) {
  if (!wishes.shapes.empty()) return read_shapes_file(wishes.shapes);
  const auto m = read_sizes("--m", wishes.m);
  const auto n = read_sizes("--n", wishes.n);
  const auto k = read_sizes("--k", wishes.k);
  const std::size_t count = std::max({m.size(), n.size(), k.size()});
  for (const auto* list : {&m, &n, &k}) {
    PLAIT_CHECK(list->size() == 1 || list->size() == count, "--m, --n and --k have ", m.size(),
                ", ", n.size(), " and ", k.size(), " sizes: give each as many, or one");
  }
  const auto at = [](const std::vector<std::int64_t>& list, std::size_t i) {
    return list[std::min(i, list.size() - 1)];
  };
  std::vector<OpSize> sizes;
  sizes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) sizes.push_back({at(m, i), at(n, i), at(k, i)});
  return sizes;
}

void check_weight_kind(const std::string& text) {
  if (text == "plain" || parse_quant_scheme(text)) return;
  const auto dtype = parse_dtype(text);
  PLAIT_CHECK(dtype && *dtype != Dtype::s8, "--weight ", text,
              " is no weight: there are f32, bf16, f16, plain, and schemes such as s8:channel or "
              "s4:group=64");
}

}  // namespace plait::cli
