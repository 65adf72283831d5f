#include "cli/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/nearest.h"
#include "base/parallel.h"
#include "base/text.h"
#include "comm/session/transports.h"
#include "plait/gemm.h"
#include "plait/quantized.h"
#include "plan/weight_kind.h"

namespace plait::cli {
namespace {

constexpr double kMostSeconds = 3600;

// Suggests the name that was probably meant; without a similar one, lists all names.
std::string rather(std::string_view text, const std::vector<std::string>& names) {
  const std::string nearest = base::did_you_mean(text, names);
  return nearest.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : nearest;
}

}  // namespace

std::int64_t read_number(std::string_view option, std::string_view text, std::int64_t least,
                         std::int64_t most) {
  const auto number = base::parse_int(text);
  PLAIT_CHECK(number && *number >= least && *number <= most, option, " ", text,
              " is not a whole number from ", least, " to ", most);
  return *number;
}

std::vector<std::int64_t> read_size_list(std::string_view option, const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (const std::string& item : read_list(option, text))
    sizes.push_back(read_number(option, item, 1, kLargestSize));
  return sizes;
}

int read_threads(std::string_view option, const std::string& text) {
  return static_cast<int>(read_number(option, text, 1, base::kMostThreads));
}

std::vector<std::string> read_list(std::string_view option, const std::string& text) {
  std::vector<std::string> items;
  for (const auto item : base::split(text, ',')) {
    PLAIT_CHECK(!item.empty(), option, " ", text, " has an empty item between commas");
    items.emplace_back(item);
  }
  return items;
}

std::vector<std::string> read_known(std::string_view option, const std::string& text,
                                    const std::vector<std::string>& known) {
  std::vector<std::string> words = read_list(option, text);
  for (const std::string& word : words) {
    PLAIT_CHECK(std::find(known.begin(), known.end(), word) != known.end(), option, " ", word,
                " is none of ", fmt::format("{}", fmt::join(known, ", ")));
  }
  return words;
}

std::ifstream open_input(std::string_view option, const std::string& path) {
  std::error_code failure;
  PLAIT_CHECK(!std::filesystem::is_directory(path, failure), option, " ", path,
              " is a folder, not a file");
  PLAIT_CHECK(!std::filesystem::is_character_file(path, failure), option, " ", path,
              " is a device, not a file");
  std::ifstream file(path);
  PLAIT_CHECK(file.is_open(), option, " ", path, " cannot be read: ", std::strerror(errno));
  return file;
}

Dtype read_dtype(std::string_view option, const std::string& text) {
  const auto dtype = parse_dtype(text);
  PLAIT_CHECK(dtype && *dtype != Dtype::s8, option, " ", text, " is none of f32, bf16, f16");
  return *dtype;
}

Dtype read_wire(std::string_view option, const std::string& text) {
  const auto dtype = parse_dtype(text);
  PLAIT_CHECK(dtype, option, " ", text, " is none of f32, bf16, f16, s8");
  return *dtype;
}

Kind<std::function<Dtype(std::string_view option, const std::string& text)>> wire_of(Operator op) {
  return {"DTYPE",
          [op](std::string_view option, const std::string& text) {
            PLAIT_CHECK(traits_of(op).shares_k, option, " ", text, " applies to partial sums, and ",
                        name(op), " has none");
            return read_wire(option, text);
          },
          wire_words};
}

std::vector<std::string> dtype_words() { return {"f32", "bf16", "f16"}; }

std::vector<std::string> wire_words() { return {"f32", "bf16", "f16", "s8"}; }

std::vector<std::string> layout_words() {
  return {std::string(name(WeightLayout::out_in)), std::string(name(WeightLayout::in_out))};
}

std::vector<std::string> backend_words() {
  std::vector<std::string> words = backend_names();
  words.emplace_back("auto");
  return words;
}

std::vector<std::string> weight_words() {
  return {"f32", "bf16", "f16", std::string(plan::kPlain)};
}

std::vector<std::string> model_words() {
  std::vector<std::string> words;
  for (const plan::Model& model : plan::models()) words.emplace_back(model.name);
  return words;
}

std::vector<std::string> transport_words() {
  std::vector<std::string> words;
  for (const comm::TransportEntry& entry : comm::transports()) words.emplace_back(entry.name);
  return words;
}

WeightLayout read_layout(std::string_view option, const std::string& text) {
  if (text == name(WeightLayout::out_in)) return WeightLayout::out_in;
  PLAIT_CHECK(text == name(WeightLayout::in_out), option, " ", text,
              " is neither out_in nor in_out");
  return WeightLayout::in_out;
}

bool is_packed_kind(std::string_view text) {
  const auto dtype = parse_dtype(text);
  return parse_quant_scheme(text) || (dtype && *dtype != Dtype::s8);
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const GemmChoice& one : explain_gemm({.m = 1, .n = 1, .k = 1})) {
    if (std::find(names.begin(), names.end(), one.backend) == names.end())
      names.push_back(one.backend);
  }
  return names;
}

std::string read_backend(std::string_view, const std::string& text) {
  if (text.empty() || text == "auto") return {};
  const std::vector<std::string> names = backend_names();
  PLAIT_CHECK(std::find(names.begin(), names.end(), text) != names.end(), "there is no backend ",
              text, rather(text, names));
  return text;
}

const plan::Model& read_model_name(const std::string& text) {
  const plan::Model* model = plan::find_model(text);
  PLAIT_CHECK(model != nullptr, "there is no model ", text, rather(text, model_words()));
  return *model;
}

base::Nanoseconds read_seconds(std::string_view option, const std::string& text) {
  const auto seconds = base::parse_number(text);
  PLAIT_CHECK(seconds && *seconds > 0 && *seconds <= kMostSeconds, option, " ", text,
              " is not a number above 0 and up to ", kMostSeconds);
  return static_cast<base::Nanoseconds>(*seconds * base::kSecond);
}

std::string read_weight_kind(std::string_view option, const std::string& text) {
  PLAIT_CHECK(text == plan::kPlain || is_packed_kind(text), option, " ", text,
              " is not a weight; give f32, bf16, f16, plain, or a scheme such as s8:channel or "
              "s4:group=64");
  return text;
}

double read_scale(std::string_view option, const std::string& text) {
  const auto scale = base::parse_number(text);
  PLAIT_CHECK(scale && *scale > 0 && *scale <= 1, option, " ", text, " is not above 0 and up to 1");
  return *scale;
}

std::string word_of(std::string_view name) {
  std::string word(name);
  std::replace(word.begin(), word.end(), '_', '-');
  return word;
}

std::vector<std::string> operator_words() {
  std::vector<std::string> words;
  for (int i = 0; i < kOperators; ++i) {
    const auto op = static_cast<Operator>(i);
    if (traits_of(op).communicates()) words.push_back(word_of(op));
  }
  return words;
}

}  // namespace plait::cli
