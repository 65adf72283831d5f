#include "cli/launch/hosts.h"

#include <unistd.h>

#include <filesystem>

#include "base/check.h"
#include "base/env.h"
#include "base/text.h"
#include "cli/launch/environment.h"

namespace plait::cli {
namespace {

constexpr const char* kPart = "PLAIT_PART";

// The variables that a remote run gets from here; others are those of the host.
bool is_forwarded(std::string_view name) {
  if (is_placement(name) || name == kPart || name == "PLAIT_RSH") return false;
  return name.starts_with("PLAIT_") || name.starts_with("COC_") || name.starts_with("USE_COC_") ||
         name.starts_with("OMP_");
}

}  // namespace

std::vector<HostShare> parse_hosts(std::string_view text, int most_ranks) {
  std::vector<HostShare> shares;
  int total = 0;
  for (const std::string_view part : base::split(text, ',')) {
    const std::size_t colon = part.rfind(':');
    const auto ranks =
        colon == std::string_view::npos ? 1 : base::parse_int(part.substr(colon + 1));
    const std::string_view host = part.substr(0, colon);
    PLAIT_CHECK(
        !host.empty() && !host.starts_with('-') && ranks && *ranks >= 1 && *ranks <= most_ranks,
        "--hosts ", text, " is not a list of hosts with their numbers of ranks, such as ",
        "node1:2,node2:2");
    shares.push_back({.host = std::string(host), .ranks = static_cast<int>(*ranks)});
    total += shares.back().ranks;
  }
  PLAIT_CHECK(total <= most_ranks, "--hosts ", text, " has ", total, " ranks; the most are ",
              most_ranks);
  return shares;
}

std::string write(const Part& part) {
  return base::sentence(part.first, '/', part.world, '/', part.job, '/', part.rendezvous);
}

std::optional<Part> part_from_environment() {
  const auto text = base::env(kPart);
  if (!text) return std::nullopt;
  const auto words = base::split(*text, '/');
  const auto first = words.size() == 4 ? base::parse_int(words[0]) : std::nullopt;
  const auto world = words.size() == 4 ? base::parse_int(words[1]) : std::nullopt;
  PLAIT_CHECK(first && world && *first >= 0 && *first < *world, kPart, "=", *text,
              " is not what plait run --hosts sets; unset it");
  return Part{.first = static_cast<int>(*first),
              .world = static_cast<int>(*world),
              .job = std::string(words[2]),
              .rendezvous = std::string(words[3])};
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

std::vector<std::string> agent_words(const HostShare& share, const Part& part,
                                     const std::vector<std::string>& options,
                                     const std::vector<std::string>& command) {
  std::string line = "cd " + quoted(std::filesystem::current_path()) + " && exec env";
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (is_forwarded(text.substr(0, text.find('=')))) line += ' ' + quoted(text);
  }
  line += ' ' + quoted(std::string(kPart) + '=' + write(part));
  line += ' ' + quoted(std::filesystem::canonical("/proc/self/exe")) + " run -n " +
          std::to_string(share.ranks);
  for (const std::string& option : options) line += ' ' + quoted(option);
  line += " --";
  for (const std::string& word : command) line += ' ' + quoted(word);

  const std::string agent = base::env("PLAIT_RSH").value_or("ssh");
  std::vector<std::string> words;
  for (const std::string_view word : base::split(agent, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  words.push_back(share.host);
  words.push_back(line);
  return words;
}

}  // namespace plait::cli
