// The addresses of a host by its name. A name server that doesn't answer keeps a process for a
// minute, and ranks have a deadline.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/tcp/address.h"

namespace plait::comm::tcp {

struct Found {
  std::vector<Address> addresses;
  std::string why;  // there are none
};

// Asks in another thread, which goes on alone where the lookup is given up. An address in figures
// needs none.
class Lookup {
 public:
  Lookup(const std::string& host, int port);

  // Null: it is under way. It waits until `until` for the answer.
  std::optional<Found> wait(base::Nanoseconds until) const;

 private:
  struct Answer;
  std::shared_ptr<Answer> answer_;
};

}  // namespace plait::comm::tcp
