#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/host.h"
#include "base/text.h"
#include "comm/mapped/mapped_transport.h"
#include "comm/shm/factory.h"
#include "comm/shm/hub.h"

namespace plait::comm::shm {

Availability available() { return {}; }

Availability supports(const Site& site) {
  if (site.place.hosts > 1) {
    return {base::sentence("shares the memory of one host; these ranks are on ", site.place.hosts)};
  }
  if (!site.place.host.empty() && site.place.world > 1) {
    return {base::sentence("shares the memory of one host; PLAIT_HOST=", site.place.host,
                           " simulates several")};
  }
  return {};
}

namespace {

// What a rank sends through the caller's own store: where to meet (rank 0), and where it is.
struct Card {
  std::string name;
  std::string host;
  std::string network;
};

std::string write(const Card& card) {
  const auto or_unknown = [](const std::string& text) { return text.empty() ? "?" : text; };
  return base::sentence(or_unknown(card.name), ' ', or_unknown(card.host), ' ',
                        or_unknown(card.network));
}

std::optional<Card> read(const std::string& text) {
  const auto words = base::split(text, ' ');
  if (words.size() != 3) return std::nullopt;
  return Card{.name = std::string(words[0]),
              .host = std::string(words[1]),
              .network = std::string(words[2])};
}

// The store may be anybody's: what it returns is looked at before it is believed.
std::vector<Card> read_all(const std::vector<std::string>& texts, const Seat& seat,
                           const std::string& mine) {
  PLAIT_CHECK(static_cast<int>(texts.size()) == seat.world, "the caller's all_gather returned ",
              texts.size(), " parts in a world of ", seat.world);
  std::vector<Card> cards;
  for (int rank = 0; rank < seat.world; ++rank) {
    const std::string& text = texts[rank];
    const auto card = read(text);
    const bool plausible =
        card && (rank != 0 || (seat.rank == 0 ? text == mine : is_secret_name(card->name)));
    PLAIT_CHECK(plausible, "the caller's all_gather returned \"", text.substr(0, 40),
                text.size() > 40 ? "..." : "", "\" for rank ", rank, ", which it cannot have sent");
    cards.push_back(*card);
  }
  return cards;
}

// The ranks that differ from rank 0 in what both know.
std::vector<int> strangers(const std::vector<Card>& cards, std::string Card::* what) {
  std::vector<int> ranks;
  for (int rank = 1; rank < static_cast<int>(cards.size()); ++rank) {
    const std::string& here = cards[0].*what;
    const std::string& there = cards[rank].*what;
    if (here != there && here != "?" && there != "?") ranks.push_back(rank);
  }
  return ranks;
}

// All ranks see the same cards and refuse at once, instead of waiting for ranks that can't come.
void check_one_host(const std::vector<Card>& cards) {
  const auto who = [](const std::vector<int>& ranks) {
    return base::sentence(ranks.size() > 1 ? "ranks " : "rank ", base::show_list(ranks),
                          ranks.size() > 1 ? " are" : " is");
  };
  const auto afar = strangers(cards, &Card::host);
  PLAIT_CHECK(afar.empty(), "the shm transport shares the memory of one host; ", who(afar),
              " on another host than rank 0");
  const auto apart = strangers(cards, &Card::network);
  PLAIT_CHECK(apart.empty(), "the shm transport needs one network namespace to meet in; ",
              who(apart), " in another than rank 0");
}

}  // namespace

std::unique_ptr<Transport> create(const Site& site) {
  const Seat seat = {
      .rank = site.place.rank, .world = site.place.world, .timeout = site.policy.timeout};
  const Watch watch = watch_for_interruption(site.policy);
  if (!site.all_gather) {
    // No peer looks for a rank that is alone, and other such ranks may run beside it.
    const std::string name = seat.world == 1 ? make_secret_name() : name_of_job(site.place.job);
    return make_mapped_transport(meet_at(name, seat, watch), site.policy);
  }
  // The caller's own store carries a name that no other process can guess.
  const std::string name = seat.rank == 0 ? make_secret_name() : "";
  std::optional<MeetingPlace> place;
  if (seat.rank == 0) place.emplace(name, base::now() + seat.timeout, watch);
  const std::string mine =
      write({.name = name, .host = base::host_id(), .network = base::namespace_id("net")});
  const std::vector<Card> cards = read_all(site.all_gather(mine), seat, mine);
  check_one_host(cards);
  std::vector<base::Fd> sockets;
  if (place) {
    sockets = assemble(std::move(*place), seat, watch);
  } else {
    sockets.push_back(attend(cards[0].name, seat, watch));
  }
  return make_mapped_transport(std::make_unique<Hub>(seat, std::move(sockets), watch), site.policy);
}

}  // namespace plait::comm::shm
