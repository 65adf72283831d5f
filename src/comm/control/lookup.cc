#include "comm/control/lookup.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/detached_thread.h"

namespace plait::comm::tcp {

struct Lookup::Answer {
  std::mutex mutex;
  std::condition_variable has_come;
  std::optional<Found> found;

  void look_up(const std::string& host, int port) {
    Found here;
    here.addresses = resolve(host, port, here.why);
    const std::lock_guard lock(mutex);
    found = std::move(here);
    has_come.notify_all();
  }
};

Lookup::Lookup(const std::string& host, int port) : answer_(std::make_shared<Answer>()) {
  if (auto addresses = read_addresses(host, port); !addresses.empty()) {
    answer_->found = Found{.addresses = std::move(addresses), .why = ""};
    return;
  }
  try {
    base::start_detached([answer = answer_, host, port] { answer->look_up(host, port); });
  } catch (const std::system_error& error) {
    // Asking here instead could take a minute beyond the deadline.
    answer_->found = Found{.addresses = {},
                           .why = base::sentence("there can be no thread to look up ", host, ": ",
                                                 error.code().message())};
  }
}

std::optional<Found> Lookup::wait(base::Nanoseconds until) const {
  const base::Nanoseconds longest = std::max<base::Nanoseconds>(until - base::now(), 0);
  std::unique_lock lock(answer_->mutex);
  answer_->has_come.wait_for(lock, std::chrono::nanoseconds(longest),
                             [this] { return answer_->found.has_value(); });
  return answer_->found;
}

}  // namespace plait::comm::tcp
