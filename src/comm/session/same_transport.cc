#include "comm/session/same_transport.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/meet/transport_check.h"
#include "comm/session/transports.h"

namespace plait::comm {
namespace {

constexpr char kAfterName = '|';

// The transport that is named before a text; empty: none is. An all-gather that is lent may
// return anything.
std::string name_before(const std::string& text) {
  std::string name = text.substr(0, text.find(kAfterName));
  for (const TransportEntry& entry : transports()) {
    if (name == entry.name && name.size() < text.size()) return name;
  }
  return "";
}

}  // namespace

AllGatherBytes with_transport_check(AllGatherBytes lent, std::string transport, int world) {
  if (!lent) return lent;
  const auto all_gather = [lent = std::move(lent), world](const std::string& mine) {
    std::vector<std::string> texts = lent(mine);
    PLAIT_CHECK(static_cast<int>(texts.size()) == world, "the caller's all_gather returned ",
                texts.size(), " parts in a world of ", world);
    return texts;
  };
  auto is_checked = std::make_shared<bool>(false);
  return [all_gather, transport = std::move(transport),
          is_checked = std::move(is_checked)](const std::string& mine) {
    if (std::exchange(*is_checked, true)) return all_gather(mine);
    std::vector<std::string> texts = all_gather(transport + kAfterName + mine);
    // Without rank 0's, there is nothing to compare with.
    const std::string first = name_before(texts.front());
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      const std::string name = name_before(texts[rank]);
      if (name.empty()) continue;  // the transport says what is wrong with it
      if (!first.empty() && name != first)
        throw transports_differ(static_cast<int>(rank), name, 0, first);
      texts[rank].erase(0, name.size() + 1);
    }
    return texts;
  };
}

}  // namespace plait::comm
