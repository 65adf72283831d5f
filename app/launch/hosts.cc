#include "launch/hosts.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/check.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/random.h"
#include "base/text.h"
#include "comm/control/rendezvous.h"
#include "launch/environment.h"

namespace plait::launch {
namespace {

constexpr const char* kPart = "PLAIT_PART";
constexpr const char* kSecret = "PLAIT_SECRET";

constexpr std::size_t kMostSecret = 4096;
constexpr base::Nanoseconds kForTheSecret = 30 * base::kSecond;

// The variables that a remote run gets from here; others are those of the host.
bool is_forwarded(std::string_view name) {
  if (is_placement(name) || name == kPart || name == kSecret || name == "PLAIT_RSH") return false;
  return name.starts_with("PLAIT_") || name.starts_with("COC_") || name.starts_with("USE_COC_") ||
         name.starts_with("OMP_") || name.starts_with("UCX_");
}

// The position of the colon before the number in a part of --hosts; the colons of an IPv6 address
// are within brackets.
std::optional<std::size_t> find_colon(std::string_view part) {
  const std::size_t bracket = part.rfind(']');
  const std::size_t colon = part.rfind(':');
  if (colon == std::string_view::npos) return part.size();
  if (bracket != std::string_view::npos) {
    const std::size_t after = bracket + 1;  // a number may follow there
    return after == part.size() || part[after] == ':' ? std::optional(after) : std::nullopt;
  }
  if (part.find(':') != colon) return std::nullopt;
  return colon;
}

bool is_this_host(std::string_view name) {
  return name == "localhost" || name == "::1" || name == "[::1]" || name.starts_with("127.");
}

}  // namespace

std::string name_of(const HostShare& share) { return share.host.substr(share.host.find('@') + 1); }

std::vector<HostShare> parse_hosts(std::string_view text, int most_ranks) {
  std::vector<HostShare> shares;
  int total = 0;
  for (const std::string_view part : base::split(text, ',')) {
    const auto colon = find_colon(part);
    const std::string_view host = part.substr(0, colon.value_or(0));
    const auto ranks =
        colon == part.size() ? 1 : base::parse_int(part.substr(colon.value_or(0) + 1));
    PLAIT_CHECK(
        !host.empty() && !host.starts_with('-') && ranks && *ranks >= 1 && *ranks <= most_ranks,
        "--hosts ", text, " is not a list of hosts with their numbers of ranks, such as ",
        "node1:2,node2:2");
    shares.push_back({.host = std::string(host), .ranks = static_cast<int>(*ranks)});
    total += shares.back().ranks;
  }
  PLAIT_CHECK(total <= most_ranks, "--hosts ", text, " has ", total, " ranks; the most are ",
              most_ranks);
  // Refused here if it makes no sense, and not by each rank.
  const bool is_chosen = base::env("PLAIT_RENDEZVOUS") && comm::tcp::rendezvous_from_environment();
  PLAIT_CHECK(shares.size() == 1 || !is_this_host(name_of(shares[0])) || is_chosen, "--hosts ",
              text, ": ranks meet on the first host, which the others can't call ",
              name_of(shares[0]), "; give it the name that they know");
  return shares;
}

std::string write(const RunPart& part) {
  return base::sentence(part.first, '/', part.world, '/', part.job, '/', part.rendezvous, '/',
                        part.hosts);
}

std::optional<RunPart> part_from_environment() {
  const auto text = base::env(kPart);
  if (!text) return std::nullopt;
  const auto words = base::split(*text, '/');
  const bool is_whole = words.size() >= 5;  // names of hosts for PLAIT_RSH may have slashes
  const auto first = is_whole ? base::parse_int(words[0]) : std::nullopt;
  const auto world = is_whole ? base::parse_int(words[1]) : std::nullopt;
  PLAIT_CHECK(
      first && world && *first >= 0 && *first < *world, kPart, "=", *text,
      " is not what plait run --hosts of this build of plait sets: install the same build on "
      "all hosts; if no plait run has set it, unset it");
  return RunPart{.first = static_cast<int>(*first),
                 .world = static_cast<int>(*world),
                 .job = std::string(words[2]),
                 .rendezvous = std::string(words[3]),
                 .hosts = text->substr(static_cast<std::size_t>(words[4].data() - text->data()))};
}

std::string choose_secret() {
  const std::string chosen = comm::tcp::secret_from_environment();
  PLAIT_CHECK(chosen.size() < kMostSecret && chosen.find('\n') == chosen.npos, kSecret,
              " is not one line of less than ", kMostSecret, " characters");
  return chosen.empty() ? base::random_name() : chosen;
}

std::string read_secret(int input) {
  const base::Nanoseconds deadline = base::now() + kForTheSecret;
  std::string secret;
  for (char byte = 0; secret.size() < kMostSecret;) {
    pollfd asked = {.fd = input, .events = POLLIN, .revents = 0};
    const auto rest = (deadline - base::now()) / base::kMillisecond;
    const int ready = rest > 0 ? ::poll(&asked, 1, static_cast<int>(rest)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || ::read(input, &byte, 1) != 1) break;
    if (byte == '\n') return secret;
    secret += byte;
  }
  base::fail(Code::system,
             "the job's secret has not come from the plait run that called this one: ",
             "what PLAIT_RSH names must pass on standard input");
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

std::vector<std::string> agent_words(const HostShare& share, const RunPart& part,
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

  // ssh must not ask, since nothing could answer, and must notice a lost host by itself.
  const std::string agent =
      base::env("PLAIT_RSH").value_or("ssh -o BatchMode=yes -o ServerAliveInterval=5");
  std::vector<std::string> words;
  for (const std::string_view word : base::split(agent, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  PLAIT_CHECK(!words.empty(), "PLAIT_RSH holds only blanks; it names a command, such as ssh");
  std::string host = share.host;
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  words.push_back(host);
  words.push_back(line);
  return words;
}

}  // namespace plait::launch
