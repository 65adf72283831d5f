// The contract of every mailbox.
#pragma once

#include <cstddef>
#include <cstdint>

#include "conformance/ranks.h"
#include "plait/mailbox.h"

namespace plait::conformance {

class MailboxConformance : public RanksTest {};

// A chunk in which every byte depends on sender, receiver, slot and number; and the check that it
// has arrived like this.
void send(Mailbox& mailbox, int from, int to, int slot, std::uint32_t number, std::size_t bytes);
void expect_chunk(Mailbox& mailbox, int from, int to, int slot, std::uint32_t number,
                  std::size_t bytes);

}  // namespace plait::conformance
