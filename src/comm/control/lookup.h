// The addresses of a host by its name, within a deadline. A name server that doesn't answer would
// keep the caller for a minute.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/control/address.h"

namespace plait::comm::tcp {

struct Found {
  std::vector<Address> addresses;
  std::string why;  // the reason if there are no addresses
};

// Asks in a thread of its own, which goes on by itself if the caller stops waiting. An address in
// figures needs no thread.
class Lookup {
 public:
  Lookup(const std::string& host, int port);

  // Waits for the answer until `until`. Returns nothing if there is none by then.
  std::optional<Found> wait(base::Nanoseconds until) const;

 private:
  struct Answer;
  std::shared_ptr<Answer> answer_;
};

}  // namespace plait::comm::tcp
