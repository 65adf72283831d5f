#include "comm/flow/lanes.h"

namespace plait::comm {

Lanes::Lanes(Group& group, const Shape& shape)
    : group_(group),
      rank_(group.rank()),
      world_(group.world()),
      per_lane_(shape.per_lane),
      is_shared_(shape.is_shared),
      is_traced_(shape.is_traced),
      apart_(group.rank(), group.world(), 1),
      positions_(static_cast<std::size_t>(shape.ways) * static_cast<std::size_t>(world())) {}

void Lanes::begin(const Tag& tag) {
  tag_ = tag;
  sent_ = {};
  received_ = {};
  for (Position& lane : positions_) {
    lane = is_shared_ ? Position{}
                      : Position{.first_out = lane.first_out + lane.posted,
                                 .first_in = lane.first_in + lane.taken};
  }
}

void Lanes::post(Way way, int peer, std::size_t bytes) {
  mailbox_->post(peer, slot_out(way, peer), tag_out(way, peer), bytes);
  ++positions_[index(way, peer)].posted;
  ++moves_;
}

void Lanes::release(Way way, int source) {
  mailbox_->release(source, slot_in(way, source));
  ++positions_[index(way, source)].taken;
  ++moves_;
}

}  // namespace plait::comm
