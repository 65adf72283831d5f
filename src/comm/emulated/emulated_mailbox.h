// A mailbox whose chunks arrive when an emulated link would have brought them.
#pragma once

#include <memory>

#include "comm/emulated/link_clock.h"
#include "comm/mailbox_base.h"

namespace plait::comm {

// `inner` must have room for one line more than `desc` says: see widened().
std::unique_ptr<MailboxBase> make_emulated_mailbox(std::unique_ptr<MailboxBase> inner,
                                                   const MailboxDesc& desc, LinkView link);

// What the inner mailbox must be made with: each chunk is preceded by a line with its arrival time.
MailboxDesc widened(const MailboxDesc& desc);

}  // namespace plait::comm
