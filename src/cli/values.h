// What the values of options say, where several verbs have the same ones. What can't be read is
// refused in a sentence that begins with the option.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/race.h"
#include "plait/dtype.h"
#include "plait/operator.h"
#include "plait/weight.h"
#include "plan/models.h"

namespace plait::cli {

// Of a matrix's side.
inline constexpr std::int64_t kLargestSize = std::int64_t{1} << 24;

std::int64_t read_number(std::string_view option, std::string_view text, std::int64_t least,
                         std::int64_t most);

// Of --threads.
int read_threads(const std::string& text);

// Items between commas, none of them empty.
std::vector<std::string> read_list(std::string_view option, const std::string& text);

// A file that an option names, or a pipe.
std::ifstream open_input(std::string_view option, const std::string& path);

// Of what can be multiplied.
Dtype read_dtype(std::string_view option, const std::string& text);

// Of --wire, which may be empty: partial sums travel in f32 then. Refused where there are none.
Dtype read_wire(Operator op, const std::string& text);

// Of --layout.
WeightLayout read_layout(const std::string& text);

// Whether there are packed weights of that kind: "bf16", "s8:group=128".
bool is_packed_kind(std::string_view text);

// Who multiplies, best first.
std::vector<std::string> backend_names();

// Of --backend: one of them; empty: the best, which "auto" is too.
std::string read_backend(const std::string& text);

// Refuses a transport that there isn't; empty is the best.
void check_transport(const std::string& name);

// Of a model that is known.
const Model& read_model_name(const std::string& text);

// Of --repeat, which may be empty, and --seconds.
Effort read_effort(const std::string& repeat, const std::string& seconds);

// The operators that communicate, as they are typed: matmul-all-reduce and so on.
std::vector<std::string> operator_words();

}  // namespace plait::cli
