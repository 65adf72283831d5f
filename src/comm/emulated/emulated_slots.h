// Slots whose chunks arrive when an emulated link would have brought them.
#pragma once

#include <memory>

#include "comm/core/group.h"
#include "comm/core/slot_transport.h"
#include "comm/emulated/link_clock.h"
#include "plait/mailbox.h"

namespace plait::comm {

// For a mailbox of `desc`. The inner slots must have room for one line more: see widened().
std::unique_ptr<SlotTransport> make_emulated_slots(std::unique_ptr<SlotTransport> inner,
                                                   Group& group, const MailboxDesc& desc,
                                                   LinkView link);

// The description of the inner slots: each chunk is preceded by a line with its arrival time.
MailboxDesc widened(const MailboxDesc& desc);

}  // namespace plait::comm
