#include "comm/session/same_link.h"

#include "base/check.h"
#include "plait/error.h"

namespace plait::comm {
namespace {

constexpr char kAfterLink = '|';

std::string link_before(const std::string& text) { return text.substr(0, text.find(kAfterLink)); }

}  // namespace

std::string link_and(const std::optional<LinkView>& link, const std::string& text) {
  return (link ? name(link->clock->link()) : "") + kAfterLink + text;
}

void take_links_off(std::vector<std::string>& texts) {
  const std::string first = link_before(texts.front());
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string link = link_before(texts[rank]);
    if (link != first) {
      throw Error(
          Code::mismatch,
          base::sentence("rank 0 emulates ", first.empty() ? "no link" : "a link of " + first,
                         ", and rank ", rank, ' ', link.empty() ? "none" : "one of " + link,
                         ": the link (PLAIT_LINK) must be the same for all ranks"),
          static_cast<int>(rank));
    }
    texts[rank].erase(0, link.size() + 1);
  }
}

}  // namespace plait::comm
