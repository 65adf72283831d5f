// Reads and writes plan keys as text.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"
#include "base/parallel.h"
#include "base/text.h"
#include "plait/plan.h"
#include "plan/families.h"
#include "plan/weight_kind.h"

namespace plait {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 28;
constexpr int kMostRanks = 65536;

constexpr std::array<std::string_view, 15> kWords = {
    "op",    "m",     "n",       "k",       "x",         "w",    "out",    "wire",
    "ranks", "hosts", "threads", "backend", "transport", "link", "columns"};

// The words of a problem's text, each at most once.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {
    for (const std::string_view word : base::split(text, ' ')) {
      if (!word.empty()) add(word);
    }
  }

  // Empty if the word is not given.
  std::string_view operator[](std::string_view key) const {
    return values_[static_cast<std::size_t>(index_of(key))];
  }

  std::int64_t number(std::string_view key, std::int64_t least, std::int64_t most,
                      std::int64_t otherwise) const {
    const std::string_view value = (*this)[key];
    if (value.empty()) return otherwise;
    const auto number = base::parse_int(value);
    PLAIT_CHECK(number && *number >= least && *number <= most, "problem: ", key, "=", value,
                " is not a whole number from ", least, " to ", most);
    return *number;
  }

  std::int64_t size(std::string_view key) const {
    PLAIT_CHECK(!(*this)[key].empty(), "problem: \"", text_, "\" has no ", key, "=");
    return number(key, 0, kLargest, 0);
  }

  std::string weight(Dtype x) const {
    const std::string said = word("w");
    if (said.empty()) return std::string(name(x));
    return said == plan::kPlain ? plan::plain_weight(x) : said;
  }

  // Returns a name such as "shm" or "s8:group=128". Its meaning is checked elsewhere; only its
  // letters matter here, since a cache stores it.
  std::string word(std::string_view key) const {
    constexpr std::string_view kSigns = "_-.:=";
    const std::string_view value = (*this)[key];
    const bool is_plain = std::all_of(value.begin(), value.end(), [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             kSigns.find(c) != kSigns.npos;
    });
    PLAIT_CHECK(is_plain, "problem: ", key,
                "= is not followed by a name of letters, digits and _-.:=");
    return std::string(value);
  }

  Dtype dtype(std::string_view key, Dtype otherwise) const {
    const std::string_view value = (*this)[key];
    if (value.empty()) return otherwise;
    const auto dtype = parse_dtype(value);
    PLAIT_CHECK(dtype && *dtype != Dtype::s8, "problem: ", key, "=", value,
                " is none of f32, bf16, f16");
    return *dtype;
  }

  Dtype wire() const {
    const std::string_view value = (*this)["wire"];
    if (value.empty()) return Dtype::f32;
    const auto dtype = parse_dtype(value);
    PLAIT_CHECK(dtype, "problem: wire=", value, " is none of f32, bf16, f16, s8");
    return *dtype;
  }

 private:
  static std::ptrdiff_t index_of(std::string_view key) {
    const auto* const found = std::find(kWords.begin(), kWords.end(), key);
    return found == kWords.end() ? -1 : found - kWords.begin();
  }

  void add(std::string_view word) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    const std::ptrdiff_t index = index_of(key);
    PLAIT_CHECK(index >= 0, "problem: unknown word ", key, "; known are ", all_words());
    PLAIT_CHECK(equals + 1 < word.size(), "problem: ", word, " has no value; write ", key, "=...");
    std::string_view& value = values_[static_cast<std::size_t>(index)];
    PLAIT_CHECK(value.empty(), "problem: \"", text_, "\" contains ", key, " more than once");
    value = word.substr(equals + 1);
  }

  static std::string all_words() {
    std::string all;
    for (const std::string_view word : kWords) {
      if (!all.empty()) all += word == kWords.back() ? " and " : ", ";
      all += word;
    }
    return all;
  }

  std::string_view text_;
  std::array<std::string_view, kWords.size()> values_ = {};
};

// Without columns= ranks have equal shares. How many experts there are follows from nothing else.
void take_family(const Words& words, const plan::FamilyCall& call, PlanKey& key) {
  key.family = call.family;
  PLAIT_CHECK(call.family != Family::experts || !words["columns"].empty(),
              "problem: op=", call.name, " needs columns=, the number of experts");
  const std::int64_t shared = is_compute_first(call.like) ? key.n : key.k;
  key.columns = words.number("columns", 1, kLargest, (shared + key.world - 1) / key.world);
}

std::string rather_than(std::string_view spelling) {
  std::vector<std::string> names;
  names.reserve(kOperators);
  for (const OperatorTraits& traits : kOperatorTraits) names.emplace_back(traits.name);
  const std::string nearest = base::did_you_mean(spelling, names);
  return nearest.empty() ? "; write, for example, op=matmul_all_reduce" : nearest;
}

}  // namespace

std::string name(const PlanKey& key) {
  std::string text = base::sentence(
      "op=", plan::call_name(key), " m=", key.m, " n=", key.n, " k=", key.k, " x=", name(key.x),
      " w=", key.weight, " out=", name(key.out), " wire=", name(key.wire), " ranks=", key.world);
  if (key.hosts != 1) text += base::sentence(" hosts=", key.hosts);
  if (key.threads != 0) text += base::sentence(" threads=", key.threads);
  if (!key.backend.empty()) text += base::sentence(" backend=", key.backend);
  if (!key.transport.empty()) text += base::sentence(" transport=", key.transport);
  if (key.link) text += base::sentence(" link=", name(*key.link));
  if (key.columns != 0) text += base::sentence(" columns=", key.columns);
  return text;
}

PlanKey parse_plan_key(std::string_view text) {
  const Words words(text);
  const std::string_view spelling = words["op"];
  PLAIT_CHECK(!spelling.empty(), "problem: \"", text,
              "\" has no op=; write, for example, op=matmul_all_reduce");
  const plan::FamilyCall* const call = plan::find_family_call(spelling);
  const auto op = call != nullptr ? call->like : parse_operator(spelling);
  PLAIT_CHECK(op, "problem: op=", spelling, " is not an operator", rather_than(spelling));
  PLAIT_CHECK(call != nullptr || words["columns"].empty(), "problem: op=", spelling,
              " has no columns=");
  const Dtype x = words.dtype("x", Dtype::bf16);
  PlanKey key = {.op = *op,
                 .m = words.size("m"),
                 .n = words.size("n"),
                 .k = words.size("k"),
                 .x = x,
                 .weight = words.weight(x),
                 .out = words.dtype("out", x),
                 .wire = words.wire(),
                 .world = static_cast<int>(words.number("ranks", 1, kMostRanks, 2)),
                 .hosts = static_cast<int>(words.number("hosts", 1, kMostRanks, 1)),
                 .threads = static_cast<int>(words.number("threads", 0, base::kMostThreads, 0)),
                 .backend = words.word("backend"),
                 .transport = words.word("transport")};
  PLAIT_CHECK(key.hosts <= key.world, "problem: ranks=", key.world, " cannot run on ", key.hosts,
              " hosts");
  if (call != nullptr || !traits_of(*op).shares_k) key.wire = x;
  if (call != nullptr) take_family(words, *call, key);
  if (const std::string_view link = words["link"]; !link.empty()) key.link = parse_link(link);
  return key;
}

}  // namespace plait
