// Parses option values that several verbs share. A value that can't be parsed is refused in a
// sentence that begins with the option.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "plait/dtype.h"
#include "plait/operator.h"
#include "plait/weight.h"
#include "plan/models.h"

namespace plait::cli {

// The largest size of a matrix.
inline constexpr std::int64_t kLargestSize = std::int64_t{1} << 24;

std::int64_t read_number(std::string_view option, std::string_view text, std::int64_t least,
                         std::int64_t most);

// A kind of values: its word in a help page, what parses it, and known ones, if it has some.
template <class Read>
struct Kind {
  const char* value;
  Read read;  // read(option, text)
  std::vector<std::string> (*choices)() = nullptr;
};
template <class Read>
Kind(const char*, Read) -> Kind<Read>;
template <class Read>
Kind(const char*, Read, std::vector<std::string> (*)()) -> Kind<Read>;

// Whole numbers.
inline auto whole(std::int64_t least, std::int64_t most, const char* value = "N") {
  return Kind{value, [=](std::string_view option, std::string_view text) {
                return read_number(option, text, least, most);
              }};
}

// Sizes of a matrix.
inline auto size(const char* value) { return whole(1, kLargestSize, value); }

// Several sizes, between commas.
std::vector<std::int64_t> read_size_list(std::string_view option, const std::string& text);
inline auto sizes(const char* value) { return Kind{value, read_size_list}; }

int read_threads(std::string_view option, const std::string& text);

// Splits at commas. Empty items are refused.
std::vector<std::string> read_list(std::string_view option, const std::string& text);

// Splits at commas, and refuses words that are none of these.
std::vector<std::string> read_known(std::string_view option, const std::string& text,
                                    const std::vector<std::string>& known);

// Opens a file, or a pipe, that an option names.
std::ifstream open_input(std::string_view option, const std::string& path);

// Parses a dtype that can be multiplied.
Dtype read_dtype(std::string_view option, const std::string& text);

// Parses a dtype in which partial sums are sent.
Dtype read_wire(std::string_view option, const std::string& text);

// The kind of one. It refuses operators without partial sums.
Kind<std::function<Dtype(std::string_view option, const std::string& text)>> wire_of(Operator op);

WeightLayout read_layout(std::string_view option, const std::string& text);

// True if weights of this kind can be packed: "bf16", "s8:group=128".
bool is_packed_kind(std::string_view text);

// The backends of products, best first.
std::vector<std::string> backend_names();

// Parses one of backend_names(). Empty or "auto": the best, which is returned as empty.
std::string read_backend(std::string_view option, const std::string& text);

// Finds a known model.
const plan::Model& read_model_name(const std::string& text);

base::Nanoseconds read_seconds(std::string_view option, const std::string& text);

// Parses the kind of a weight: a dtype, "plain" or a scheme.
std::string read_weight_kind(std::string_view option, const std::string& text);

// Parses a factor for a model's widths.
double read_scale(std::string_view option, const std::string& text);

// Words that these readers accept, for completion in a shell; not all that they accept.
std::vector<std::string> dtype_words();
std::vector<std::string> wire_words();
std::vector<std::string> layout_words();
std::vector<std::string> backend_words();
std::vector<std::string> weight_words();
std::vector<std::string> model_words();
std::vector<std::string> transport_words();

inline constexpr Kind kThreads = {"T", read_threads};
inline constexpr Kind kDtype = {"DTYPE", read_dtype, dtype_words};
inline constexpr Kind kWire = {"DTYPE", read_wire, wire_words};
inline constexpr Kind kLayout = {"LAYOUT", read_layout, layout_words};
inline constexpr Kind kBackend = {"NAME", read_backend, backend_words};
inline constexpr Kind kSeconds = {"S", read_seconds};
inline constexpr Kind kWeight = {"KIND", read_weight_kind, weight_words};
inline constexpr Kind kScale = {"S", read_scale};

// An operator as typed, such as matmul-all-reduce; and all that communicate.
std::string word_of(std::string_view name);
inline std::string word_of(Operator op) { return word_of(name(op)); }
std::vector<std::string> operator_words();

}  // namespace plait::cli
