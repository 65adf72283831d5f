// What every mailbox does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "conformance/ranks.h"
#include "plait/mailbox.h"

namespace plait::conformance {

class MailboxConformance : public RanksTest {};

// A chunk whose every byte says from whom, to whom, where and which it is; and that it has come so.
void send(Mailbox& mailbox, int from, int to, int slot, std::uint32_t number, std::size_t bytes);
void expect_chunk(Mailbox& mailbox, int from, int to, int slot, std::uint32_t number,
                  std::size_t bytes);

}  // namespace plait::conformance
